import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas_rlm.programs.languages import LANGUAGES, language_of_file, other_language, recognise

SOURCES = {
    "Python": "class Solution:\n    def twoSum(self, nums, target):\n        return []\n",
    "C": "int* twoSum(int* nums, int numsSize, int target) {\n    return malloc(8);\n}\n",
    "C++": "class Solution {\npublic:\n    vector<int> twoSum(vector<int>& nums, int t) { return {}; }\n};\n",
    "Java": "class Solution {\n    public int[] twoSum(int[] nums, int target) { return nums; }\n}\n",
    "Kotlin": "class Solution {\n    fun twoSum(nums: IntArray, target: Int): IntArray = nums\n}\n",
    "Swift": "class Solution {\n    func twoSum(_ nums: [Int], _ target: Int) -> [Int] { nums }\n}\n",
    "C#": "public class Solution {\n    public int[] TwoSum(int[] nums, int target) { return nums; }\n}\n",
    "Go": "func twoSum(nums []int, target int) []int {\n\treturn nums\n}\n",
    "Rust": "impl Solution {\n    pub fn two_sum(nums: Vec<i32>, target: i32) -> Vec<i32> { nums }\n}\n",
    "JavaScript": "/**\n * @param {number[]} nums\n */\nvar twoSum = function(nums) { return nums; };\n",
    "TypeScript": "function twoSum(nums: number[], target: number): number[] { return nums; }\n",
    "Ruby": "def two_sum(nums, target)\n  nums\nend\n",
    "Scala": "object Solution {\n  def twoSum(nums: Array[Int], target: Int): Array[Int] = nums\n}\n",
    "PHP": "class Solution {\n    function twoSum($nums, $target) { return $nums; }\n}\n",
    "Dart": "class Solution {\n  List<int> twoSum(List<int> nums, int target) => nums;\n}\n",
    "Racket": "(define/contract (two-sum nums target)\n  (-> (listof integer?) integer? any)\n  nums)\n",
    "Erlang": "-spec two_sum(Nums :: [integer()], T :: integer()) -> [integer()].\ntwo_sum(N, _) -> N.\n",
    "Elixir": "defmodule Solution do\n  def two_sum(nums, _target) do\n    nums\n  end\nend\n",
}


def test_every_language_has_an_ending_and_is_recognised_without_one(tmp_path):
    assert set(SOURCES) == set(LANGUAGES.values()) and len(SOURCES) == 18
    for language, source in SOURCES.items():
        assert recognise(source) == [language]
        (tmp_path / "program").write_text(source)
        assert language_of_file(tmp_path / "program") == language
    for suffix, language in LANGUAGES.items():
        assert language_of_file(tmp_path / f"missing{suffix.upper()}") == language


def test_files_that_are_no_programs_are_left_to_other_readers(tmp_path):
    for name, content in {
        "a": b"\x08\x07\x00x",
        "b.txt": b"\xff\xfe\x01",
        "c": b" \n",
        "d.onnx": b"def f():",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert language_of_file(tmp_path / name) == ""
    assert language_of_file(tmp_path) == language_of_file(tmp_path / "missing") == ""
    (tmp_path / "network.txt").write_text(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[1] x) => (float[1] y) {}'
    )
    assert language_of_file(tmp_path / "network.txt") == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "Some notes.\n",
            r"notes\.txt is text in no language that is recognised.*ends in \.py, \.c, .*\.exs",
        ),
        (SOURCES["Python"] + SOURCES["Kotlin"], r"notes\.txt may be Python or Kotlin: expected"),
    ],
)
def test_text_in_no_or_several_languages_is_refused(tmp_path, content, message):
    (tmp_path / "notes.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        language_of_file(tmp_path / "notes.txt")


def test_content_in_another_language_than_the_ending_says_is_noticed():
    for language, source in SOURCES.items():
        assert other_language(source, language) == ""
        for other in set(SOURCES) - {language}:
            is_dialect = (language, other) in {("C", "C++"), ("JavaScript", "TypeScript")}
            assert other_language(source, other) == ("" if is_dialect else language)


@pytest.mark.parametrize(
    ("source", "expected"), [('{"a": 1}\n', "JSON"), (" [1, 2]", "JSON"), ("{a", ""), ("f(1)", "")]
)
def test_json_is_in_no_language(source, expected):
    assert {other_language(source, language) for language in SOURCES} == {expected}


@pytest.mark.parametrize("source", ["404: Not Found\n", "This is a sentence.", "// nothing\n/* yet */\n"])
def test_text_without_code_is_in_no_language_that_needs_signs(source):
    words = {"Python", "Ruby", "Elixir"}
    assert {other_language(source, name) for name in set(SOURCES) - words} == {"text without code"}
    assert {other_language(source, name) for name in words} == {""}


def test_a_page_of_html_is_no_program_unless_it_has_php():
    page = "\n<!DOCTYPE html>\n<html><script>var x = function() {};</script></html>"
    assert other_language(page, "JavaScript") == other_language(page, "Java") == "HTML"
    assert other_language(f"<html><?php echo 1; ?>{page}", "PHP") == ""


@pytest.mark.parametrize(("name", "language"), [("a.zig", "Zig"), ("a.R", "R"), ("a.hs", "Haskell")])
def test_a_program_in_a_language_that_is_not_known_is_refused_by_its_ending(tmp_path, name, language):
    (tmp_path / name).write_text("pub fn main() void {}\n")  # which reads like Rust
    with pytest.raises(
        ValueError, match=rf"{name} is in {language}, which no model has learnt: .* \.py, \.c,"
    ):
        language_of_file(tmp_path / name)


def test_constructs_of_the_supposed_language_rule_out_others():
    assert other_language(SOURCES["Python"] + SOURCES["Kotlin"], "Kotlin") == ""
    assert other_language(SOURCES["Python"] + SOURCES["Kotlin"], "Java") == ""


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read(text):
    assert set(recognise(text)) <= set(LANGUAGES.values())
