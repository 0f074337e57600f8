"""The requests of a run and their order, by hand."""

import json
from collections.abc import Iterator
from dataclasses import replace

from kimi_helpers.apis import OPENROUTER
from kimi_helpers.prompts import Prompt
from kimi_helpers.run_plan import PROMPTS_A_LOOK, Job, Plan, Settings
from kimi_helpers.targets import Target
from tests.test_generation import prompts

TARGET = Target("p/int4", "p/int4")
SETTINGS = Settings("d", "moonshotai/kimi-k2.5", seed=7)


def test_first_samples_of_all_prompts_come_first_some_at_a_time() -> None:
    texts = [str(n) for n in range(PROMPTS_A_LOOK + 1)]
    looks = list(Plan(prompts(*texts), SETTINGS, 2).looks(TARGET, OPENROUTER))
    assert [len(jobs) for jobs in looks] == [PROMPTS_A_LOOK, 1, PROMPTS_A_LOOK, 1]
    order = [(job.sample, job.prompt.id) for jobs in looks for job in jobs.values()]
    assert order == [(sample, text) for sample in (0, 1) for text in texts]
    assert len({key for jobs in looks for key in jobs}) == 2 * len(texts)


def test_a_prompt_that_stands_twice_is_one_request() -> None:
    (jobs,) = Plan(prompts("a", "b", "a"), SETTINGS).looks(TARGET, OPENROUTER)
    assert [job.prompt.id for job in jobs.values()] == ["a", "b"]


class _OnDisk:
    """Prompts that can be gone through again and whose number is not known."""

    def __iter__(self) -> Iterator[Prompt]:
        return iter(prompts("a", "b", "c"))


def test_the_size_is_known_where_the_prompts_have_one() -> None:
    assert Plan(prompts("a", "b", "c"), SETTINGS, 4).size() == 12
    assert Plan(_OnDisk(), SETTINGS, 2).size() is None
    assert sum(map(len, Plan(_OnDisk(), SETTINGS, 2).looks(TARGET, OPENROUTER))) == 6


def test_each_sample_has_a_seed_of_its_own() -> None:
    jobs = [Job(prompts("a")[0], TARGET, sample) for sample in range(3)]
    assert [json.loads(job.request(SETTINGS, OPENROUTER))["seed"] for job in jobs] == [7, 8, 9]
    unseeded = replace(SETTINGS, seed=None)
    assert "seed" not in json.loads(jobs[0].request(unseeded, OPENROUTER))
    # without a seed the requests are the same bytes, and still three requests
    assert len({job.request(unseeded, OPENROUTER) for job in jobs}) == 1
    assert len({job.key(unseeded, OPENROUTER) for job in jobs}) == 3


def test_a_key_changes_with_everything_that_is_asked() -> None:
    job = Job(prompts("a")[0], TARGET, 0)
    others = [
        (job, replace(SETTINGS, temperature=0.5)),
        (job, replace(SETTINGS, max_tokens=7)),
        (job, replace(SETTINGS, dataset="e")),
        (job, replace(SETTINGS, system="")),
        (replace(job, target=Target("q/int4", "q/int4")), SETTINGS),
        (replace(job, prompt=prompts("b")[0]), SETTINGS),
        (replace(job, prompt=replace(job.prompt, id="z")), SETTINGS),
    ]
    keys = {each.key(settings, OPENROUTER) for each, settings in [(job, SETTINGS), *others]}
    assert len(keys) == len(others) + 1
    assert job.key(SETTINGS, OPENROUTER) == Job(prompts("a")[0], TARGET, 0).key(SETTINGS, OPENROUTER)
