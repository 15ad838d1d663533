"""Users' own spaces: from files and modules, by registration, and their errors."""

import pickle
from importlib.metadata import EntryPoints

import numpy as np
import pytest

import search_spaces
from search_spaces import SearchSpace
from tests.search_spaces import plain_space
from tests.search_spaces.plain_space import PlainSpace

FILE = plain_space.__file__
METHODS = """
    def decode(self, genome): ...
    def encode(self, architecture): ...
    def parse(self, text): ...
    def write(self, graph, architecture): ...
"""
ATTRIBUTES = "    name, size, genes = 'mine', 4, (2, 2)\n"


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    registered = {}
    monkeypatch.setattr(search_spaces, "_registered", registered)
    return registered


def source(body, bases="SearchSpace"):
    return f"from search_spaces import SearchSpace\n\nclass Mine({bases}):\n{body}"


@pytest.mark.parametrize("location", [f"{FILE}:PlainSpace", "tests.search_spaces.plain_space:PlainSpace"])
def test_a_space_of_a_file_or_module_is_registered(location):
    space = search_spaces.get(location)
    architecture = space.sample(np.random.default_rng(0))
    assert pickle.loads(pickle.dumps(architecture)) == architecture
    assert (space.name, space.location) == ("plain", location)
    assert search_spaces.get("plain") is space
    assert "plain" in search_spaces.names()
    assert search_spaces.name_of(location) == "plain" == search_spaces.registered_name(location)
    assert search_spaces.location_of(space) == location


def test_a_relative_path_has_an_absolute_location(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(source(ATTRIBUTES + METHODS))
    assert search_spaces.registered_name("mine.py:Mine") == "mine.py:Mine"
    assert search_spaces.get("mine.py:Mine").location == f"{tmp_path / 'mine.py'}:Mine"
    assert search_spaces.registered_name("mine.py:Mine") == "mine"


def test_modules_beside_the_file_can_be_imported(tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("GENES = (5, 7)\n")
    body = "    name, size = 'mine', None\n    genes = helper_of_mine.GENES\n" + METHODS
    (tmp_path / "mine.py").write_text("import helper_of_mine\n" + source(body))
    assert search_spaces.get(f"{tmp_path}/mine.py:Mine").genes == (5, 7)


def test_a_changed_file_is_loaded_again(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    path.write_text(source(ATTRIBUTES + METHODS))
    first = search_spaces.get(f"{path}:Mine")
    assert type(search_spaces.get(f"{path}:Mine")) is type(first)
    path.write_text(
        source("    name, size, genes = 'mine', 9, (3, 3)\n" + METHODS)
    )  # of the same size and second
    assert search_spaces.get(f"{path}:Mine").size == search_spaces.get("mine").size == 9


@pytest.mark.parametrize(
    ("text", "location", "message"),
    [
        ("", "none.py:Mine", "there is no file .*none.py"),
        ("", "mine.py:", "is not FILE.py:CLASS or MODULE:CLASS"),
        ("", ":Mine", "is not FILE.py:CLASS or MODULE:CLASS"),
        ("", "no_such_module:Mine", "no_such_module cannot be run: ModuleNotFoundError"),
        ("1 / 0", "mine.py:Mine", "cannot be run: ZeroDivisionError: division by zero"),
        ("raise SystemExit", "mine.py:Mine", "cannot be run: SystemExit"),
        ("def", "mine.py:Mine", "cannot be run: SyntaxError"),
        ("", "mine.py:Mine", "has no class 'Mine'; it has no SearchSpace at all"),
        (source(ATTRIBUTES + METHODS), "mine.py:Mime", "has no class 'Mime'; did you mean 'Mine'"),
        ("Mine = 3", "mine.py:Mine", "it is a int, expected a subclass"),
        (source("    pass", "str"), "mine.py:Mine", "Mine is a class, expected a subclass"),
        (source(ATTRIBUTES), "mine.py:Mine", "Mine does not define decode, encode, parse, write"),
        (source(ATTRIBUTES + METHODS.replace("parse", "read")), "mine.py:Mine", "does not define parse$"),
        (
            source(ATTRIBUTES + METHODS + "    def __init__(self, depth, width=3): ...\n"),
            "mine.py:Mine",
            "the constructor of Mine needs depth: expected defaults",
        ),
        (
            source(ATTRIBUTES + METHODS + "    def __init__(self): raise KeyError('depth')\n"),
            "mine.py:Mine",
            r"Mine\(\) failed: KeyError: 'depth'",
        ),
        (source(METHODS), "mine.py:Mine", "Mine has no attribute 'name'"),
        (source("    name, size = 'mine', 3\n" + METHODS), "mine.py:Mine", "Mine has no attribute 'genes'"),
        (source(ATTRIBUTES + "    name = 'a b'\n" + METHODS), "mine.py:Mine", "the name of Mine is 'a b'"),
        (source(ATTRIBUTES + "    size = 2.5\n" + METHODS), "mine.py:Mine", "the size of Mine is 2.5"),
        (source(ATTRIBUTES + "    genes = [2, 2]\n" + METHODS), "mine.py:Mine", "genes of Mine is"),
        (source(ATTRIBUTES + "    genes = (2, 0)\n" + METHODS), "mine.py:Mine", "genes of Mine is"),
        (
            source(ATTRIBUTES + "    input_shape = (3, 8, 8, 8, 8)\n" + METHODS),
            "mine.py:Mine",
            r"input_shape of Mine is \(3, 8, 8, 8, 8\), expected one number of features, or channels and up",
        ),
        (
            source(ATTRIBUTES + "    input_type = 'int32'\n" + METHODS),
            "mine.py:Mine",
            "input_type of Mine is",
        ),
        (
            source(ATTRIBUTES + "    input_type = 'int64'\n" + METHODS),
            "mine.py:Mine",
            r"input_shape of Mine is \(3, 32, 32\), expected the number of tokens",
        ),
        *(
            (
                source(ATTRIBUTES + f"    batch_size = {value}\n" + METHODS),
                "mine.py:Mine",
                f"the batch_size of Mine is {value}, expected a positive integer",
            )
            for value in ("0", "-2", "2.0", "True", "None")
        ),
    ],
)
def test_a_space_that_cannot_be_loaded(tmp_path, monkeypatch, text, location, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ValueError, match=rf"search space '{location}'.*{message}") as error:
        search_spaces.get(location)
    assert "\n" not in str(error.value)


def test_the_name_of_another_space_is_refused(tmp_path):
    for name in ("nasbench201", "plain"):
        (tmp_path / f"{name}.py").write_text(
            source(f"    name, size, genes = {name!r}, 4, (2, 2)\n" + METHODS)
        )
    with pytest.raises(ValueError, match="has the name 'nasbench201', which another search space has"):
        search_spaces.get(f"{tmp_path}/nasbench201.py:Mine")
    search_spaces.register(PlainSpace())
    search_spaces.register(PlainSpace())
    search_spaces.get(f"{FILE}:PlainSpace")  # the same class of the same file
    with pytest.raises(ValueError, match="has the name 'plain', which another search space has"):
        search_spaces.get(f"{tmp_path}/plain.py:Mine")


def test_a_checked_space_is_not_registered(registry):
    space = PlainSpace()
    assert search_spaces.checked(space) is space
    assert not registry
    assert search_spaces.register(space) is space
    assert registry == {"plain": space}
    assert search_spaces.checked("plain") is search_spaces.register("plain") is space


@pytest.mark.parametrize("space", [PlainSpace, None, 3])
def test_what_is_no_space_is_refused(space, registry):
    for function in (search_spaces.checked, search_spaces.register):
        with pytest.raises(ValueError, match=r"expected an object such as MySpace\(\), or its name"):
            function(space)
    assert not registry


def install(directory, name):
    """Write what an installed package with the entry point of a space has."""
    package = directory / f"{name}-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    group = f"[{search_spaces.ENTRY_POINT_GROUP}]"
    (package / "entry_points.txt").write_text(
        f"{group}\n{name} = tests.search_spaces.plain_space:PlainSpace\n"
    )


def test_entry_points(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert "plain" not in search_spaces.names()
    install(tmp_path, "plain")  # also while the process runs
    assert "plain" in search_spaces.names()
    space = search_spaces.get("plain")
    assert isinstance(space, SearchSpace)
    search_spaces.checked(PlainSpace())
    assert search_spaces.location_of(space) == ""
    install(tmp_path, "simple")
    with pytest.raises(ValueError, match=r"'simple', .* has the name 'plain': expected equal names"):
        search_spaces.get("simple")


def test_entry_points_are_read_once(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(search_spaces, "entry_points", lambda group: read.append(group) or EntryPoints())
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(3):
        assert search_spaces.task_of("gpt_s") == search_spaces.LANGUAGE_MODELLING
        assert search_spaces.task_of("unknown") == ""
    assert read == [search_spaces.ENTRY_POINT_GROUP]


def test_built_in_spaces_have_no_location():
    space = search_spaces.get("nats_size")
    assert space.is_built_in and not search_spaces.location_of(space)

    class Local(PlainSpace):
        pass

    assert not Local().is_built_in and not search_spaces.location_of(Local())


def test_an_empty_name_is_no_space():
    with pytest.raises(ValueError, match=r"the name of a search space is empty: expected one of fbnet"):
        search_spaces.get("")
