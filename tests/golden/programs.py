"""Short programs of each kind that the model `programs` reads."""

PRIMES = """\
def primes(n):
    sieve = [True] * (n + 1)
    found = []
    for i in range(2, n + 1):
        if sieve[i]:
            found.append(i)
            for j in range(i * i, n + 1, i):
                sieve[j] = False
    return found
"""
FIBONACCI = """\
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
"""
TABLE = """\
def longest_common(first, second):
    best = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            best[i + 1][j + 1] = best[i][j] + 1 if a == b else max(best[i][j + 1], best[i + 1][j])
    return best[-1][-1]
"""
SORTED_SCRIPT = """\
n = int(input())
values = [int(input()) for _ in range(n)]
values.sort()
print(*values[:100])
"""
COUNTING_SCRIPT = """\
import sys
from collections import Counter

words = sys.stdin.read().split()
for word, count in Counter(words).most_common(100):
    print(word, count)
"""
C_SUM = """\
#include <stdio.h>

int main(void) {
    long long sum = 0;
    int n, x;
    scanf("%d", &n);
    for (int i = 0; i < n; i++) {
        scanf("%d", &x);
        sum += x;
    }
    printf("%lld\\n", sum);
    return 0;
}
"""
C_ARRAY = """\
#include <stdio.h>

static int table[1000][1000];

int main(void) {
    int n;
    scanf("%d", &n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            table[i][j] = i ? table[i - 1][j] + j : j;
    printf("%d\\n", table[n - 1][n - 1]);
    return 0;
}
"""
CPP_SORT = """\
#include <algorithm>
#include <iostream>
#include <vector>

int main() {
    int n;
    std::cin >> n;
    std::vector<long long> a(n);
    for (auto &x : a) std::cin >> x;
    std::sort(a.begin(), a.end());
    std::cout << a[n / 2] << std::endl;
}
"""
CPP_GRAPH = """\
#include <iostream>
#include <queue>
#include <vector>
using namespace std;

int main() {
    int n, m;
    cin >> n >> m;
    vector<vector<int>> next(n);
    for (int i = 0; i < m; i++) {
        int a, b;
        cin >> a >> b;
        next[a].push_back(b);
        next[b].push_back(a);
    }
    vector<int> distance(n, -1);
    queue<int> open;
    open.push(0);
    distance[0] = 0;
    while (!open.empty()) {
        int v = open.front();
        open.pop();
        for (int w : next[v])
            if (distance[w] < 0) {
                distance[w] = distance[v] + 1;
                open.push(w);
            }
    }
    cout << distance[n - 1] << endl;
}
"""
TRITON_ADD = """\
# input: [[4096, 64], [4096, 64]]
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)
"""
TRITON_SOFTMAX = """\
# input: [[1024, 1024]]
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_columns
    x = tl.load(x_ptr + row * n_columns + columns, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n_columns + columns, x / tl.sum(x, axis=0), mask=mask)
"""

# kind: suffix, space of the programs that the model was trained on, objectives, texts
PROGRAMS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "solution": (".py", "APPS", ("memory", "memory/small-inputs"), (PRIMES, FIBONACCI, TABLE)),
    "script": (".py", "CDSS/Python", ("memory",), (SORTED_SCRIPT, COUNTING_SCRIPT)),
    "c": (".c", "CDSS/C", ("memory",), (C_SUM, C_ARRAY)),
    "cpp": (".cpp", "CDSS/C++", ("memory",), (CPP_SORT, CPP_GRAPH)),
    "kernel": (".py", "KBSS", ("latency",), (TRITON_ADD, TRITON_SOFTMAX)),
}
