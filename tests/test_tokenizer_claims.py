"""The claims, on the real vocabulary and on one where they are otherwise."""

from kimi_helpers.tokenizer_claims import Verdict, check_claims, claims_table, ended_row
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

TEXTS = ["Hello world, don't stop.", "中文和 English 123", "def f(x):\n    return x + 1\n"]


def test_verdicts_on_kimi_s_vocabulary(kimi: Vocabulary) -> None:
    tested = check_claims(kimi, TEXTS)
    assert [row.verdict for row in tested] == [
        Verdict.holds,
        Verdict.refuted,
        Verdict.refuted,
        Verdict.exception,
        Verdict.exception,
        Verdict.exception,
        Verdict.refuted,
        Verdict.refuted,
    ]
    evidence = [row.evidence for row in tested]
    assert evidence[1] == "163533 spells 'chas' and is an ordinary token of text; <|im_end|> has id 163586"
    assert evidence[6].startswith("3 of 3 rows")
    assert list(claims_table(tested)["claim"]) == [row.statement for row in tested]


def test_a_table_without_think_says_so() -> None:
    tested = check_claims(load_vocabulary(format="kimi-k2"), TEXTS)
    assert tested[0].verdict is Verdict.exception
    assert tested[0].evidence.startswith("12 of 14 are as claimed; <think> is not named")
    assert tested[3].verdict is Verdict.untested


def test_other_ids_refute_the_claims(tiny: Vocabulary) -> None:
    tested = check_claims(tiny, TEXTS)
    assert tested[0].verdict is Verdict.refuted
    assert tested[1].evidence == "163533 is outside this vocabulary; <|im_end|> has id 266"


def test_a_row_ended_with_text_does_not_end(kimi: Vocabulary) -> None:
    wrong = ended_row(kimi, "Yes", 163533)
    assert (wrong.text, wrong.has_end) == ("Yeschas", False)
    assert wrong.encoded_again == kimi.encode("Yeschas")
    right = ended_row(kimi, "Yes", kimi.special_id("<|im_end|>"))
    assert (right.text, right.encoded_again, right.has_end) == ("Yes<|im_end|>", right.ids, True)
