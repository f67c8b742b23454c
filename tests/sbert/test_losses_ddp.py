"""Two real processes, against one process on their joined batch."""

from __future__ import annotations

import pytest
import torch

from ddp_worker import CASES, backward, train


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_of_two_processes_are_those_of_their_joined_batch(two_ranks, tiny_encoder, case):
    expected = backward(tiny_encoder, case, slice(None), wrap=lambda model: model)
    assert sum(value.abs().max() > 1e-3 for value in expected.values()) > 20
    for rank in two_ranks:
        assert rank[case].keys() == expected.keys()
        for name, value in expected.items():
            largest = max(1.0, value.abs().max().item())
            assert (rank[case][name] - value).abs().max() <= 1e-5 * largest, name


@pytest.mark.parametrize(
    "step", ["trained on the joined batch", "trained on the joined batch, packed", "trained on the joined batch, cut"]
)
def test_two_processes_train_to_the_weights_and_the_temperature_of_one(two_ranks, tiny_encoder, tmp_path, step):
    expected = train(tiny_encoder, tmp_path, 6, gather=True)
    for rank in two_ranks:
        found = rank[step]
        assert found["temperature"] == pytest.approx(expected["temperature"], rel=1e-5)
        for name, weight in expected["weights"].items():
            torch.testing.assert_close(found["weights"][name], weight, atol=1e-5, rtol=1e-4)


def test_the_temperature_is_the_same_on_both_processes_even_if_their_batches_are_not_joined(two_ranks):
    first, second = (rank["trained on separate batches"] for rank in two_ranks)
    assert first["temperature"] == second["temperature"]
    assert first["temperature"] != pytest.approx(0.1, rel=0.01)
    assert first["temperature"] != pytest.approx(two_ranks[0]["trained on the joined batch"]["temperature"], rel=1e-3)
