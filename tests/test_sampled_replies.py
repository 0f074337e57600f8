"""Replies of a real model whose ids are known: cut at the end token, told as an API tells them, and graded."""

from pathlib import Path

import numpy as np
import pytest

from kimi_helpers import smollm2
from kimi_helpers.capture_rows import read_rows
from kimi_helpers.formats import FORMATS
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.prompts import Prompt
from kimi_helpers.reconstruction import Grade, reconstruct
from kimi_helpers.replies import Reply
from kimi_helpers.sampled_replies import SampledReply, as_api_reply, sample_replies, write_training_rows
from kimi_helpers.serving_stacks import known_stacks
from kimi_helpers.target_models import load_target, target_facts
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

CHATML = FORMATS["chatml"]
HOST = ProviderProfile("in process", (known_stacks()["faithful"],), None, "built so")


@pytest.fixture(scope="module")
def smollm() -> Vocabulary:
    if not smollm2.is_available():
        pytest.skip(f"SmolLM2 is not installed: {smollm2.HOW}")
    return load_vocabulary(smollm2.smollm2_folder())


def prompt(text: str) -> Prompt:
    return Prompt(text, ({"role": "user", "content": text},), None, True)


def test_a_real_model_s_replies_are_found_again_from_their_text(smollm: Vocabulary) -> None:
    target = load_target(target_facts("smollm2"), dtype="float32")
    asked = [prompt("Say hello."), prompt("What is the capital of France? Answer in one word.")]
    sampled = sample_replies(target, smollm, CHATML, asked, most=12, temperature=0)
    for reply in sampled:
        assert reply.ended == (reply.ids[-1] == smollm.special_id("<|im_end|>"))
        told = as_api_reply(reply, smollm, "smollm2-135m-instruct")
        assert isinstance(told, Reply)
        found = reconstruct(told, smollm, CHATML, HOST)
        assert not found.grade.is_exact or found.token_ids == reply.ids
    # batched on the left or alone, the likeliest tokens are the same
    alone = [sample_replies(target, smollm, CHATML, [one], most=12, temperature=0)[0] for one in asked]
    assert [reply.ids for reply in alone] == [reply.ids for reply in sampled]
    assert "Paris" in smollm.decode(sampled[1].ids)


def test_a_reply_is_graded_by_its_text_and_count(smollm: Vocabulary) -> None:
    ids = (*smollm.encode("Paris is the capital."), smollm.special_id("<|im_end|>"))
    right = SampledReply(prompt("x"), (1, 2), ids, True)
    found = reconstruct(as_api_reply(right, smollm, "smollm2"), smollm, CHATML, HOST)
    assert (found.grade, found.token_ids) == (Grade.exact_unique, ids)


def test_rows_are_laid_down_as_the_training_stage_does(tmp_path: Path) -> None:
    sampled = [SampledReply(prompt(name), (5, 6, 7), (8, 9), True) for name in "ab"]
    rows = list(read_rows(write_training_rows(tmp_path / "rows.parquet", sampled)))
    assert [row.row_id for row in rows] == ["a", "b"]
    np.testing.assert_array_equal(rows[1].ids, [5, 6, 7, 8, 9])
    np.testing.assert_array_equal(rows[1].mask, [0, 0, 0, 1, 1])
