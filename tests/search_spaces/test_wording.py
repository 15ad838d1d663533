from search_spaces.wording import counted


def test_nouns_have_the_number_of_their_count():
    assert [counted(count, "label") for count in (0, 1, 2, -1)] == [
        "0 labels",
        "1 label",
        "2 labels",
        "-1 labels",
    ]
    assert counted(1, "vertex", "vertices") == "1 vertex"
    assert counted(12345, "row has", "rows have") == "12,345 rows have"
