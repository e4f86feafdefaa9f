"""Every comparator sees its fault, by name, and says where the worst element is."""

from __future__ import annotations

import re

import pytest
import torch

from deepinfer.conformance.case import raised
from deepinfer.conformance.compare.accumulated import compare_accumulated
from deepinfer.conformance.compare.decided_choices import compare_choices
from deepinfer.conformance.compare.decided_codes import compare_codes
from deepinfer.conformance.compare.exact import compare_bits, compare_form, same_bits
from deepinfer.conformance.compare.report import Report, index_of
from deepinfer.conformance.compare.rounded import compare_rounded
from deepinfer.conformance.compare.within import compare_within
from deepinfer.conformance.oracle.expected import Choice, Codes, Within
from deepinfer.ops.numerics import Rounded

BF16, F32 = torch.bfloat16, torch.float32
NAN, INF = float("nan"), float("inf")


def only(report: Report) -> tuple[str, str]:
    """Check and message of the one finding of a report."""
    (finding,) = report.findings
    return finding.check, finding.message


def test_exact_names_the_first_wrong_element() -> None:
    want = torch.arange(12, dtype=torch.int32).view(3, 4)
    got = want.clone()
    got[1, 2], got[2, 0] = 7, 9
    finding = compare_bits("ids", got, want)
    assert finding is not None and finding.check == "bits"
    assert finding.message == "ids[1, 2]: got 7, want 6, limit 0; 2 of 12 elements differ"
    assert compare_bits("ids", want.clone(), want) is None
    assert compare_bits("ids", got, want, got == want) is None


def test_bits_are_shown_as_an_unsigned_number() -> None:
    got, want = torch.tensor([-1.0]).bfloat16(), torch.tensor([0.5]).bfloat16()
    assert "(bits 0xbf80 and 0x3f00)" in str(compare_bits("y", got, want))


def test_exact_keeps_signed_zeros_apart_and_all_nan_together() -> None:
    zeros = torch.tensor([0.0, -0.0])
    finding = compare_bits("x", zeros, zeros.flip(0))
    assert finding is not None and "bits 0x00000000 and 0x80000000" in finding.message
    payloads = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(F32)
    assert same_bits(payloads, payloads.flip(0)) and same_bits((zeros, payloads), (zeros, payloads))
    assert not same_bits((zeros,), (zeros, zeros)) and not same_bits(zeros, zeros.bfloat16())


def test_form_comes_before_values() -> None:
    want = torch.zeros(2, 3)
    for got, check in ((want.bfloat16(), "dtype"), (want.view(3, 2), "shape")):
        finding = compare_form("y", got, want)
        assert finding is not None and finding.check == check
        assert compare_bits("y", got, want) == finding


@pytest.mark.parametrize(
    ("value", "says"),
    [(NAN, "got nan, the reference has 1"), (INF, "got inf, the reference has 1")],
)
def test_nonfinite_values_come_before_limits(value: float, says: str) -> None:
    want = torch.ones(2, 3, dtype=torch.float64)
    got = want.to(BF16)
    got[0, 0], got[1, 2] = 5, value  # the limit is broken as well
    check, message = only(compare_within("y", Within(want, want), got, want.to(BF16)))
    assert check == "nonfinite" and message.startswith(f"y[1, 2]: {says}")


def test_a_nan_or_infinity_that_is_missing_is_nonfinite() -> None:
    want = torch.tensor([NAN, INF, -INF, 1.0], dtype=torch.float64)
    limit = torch.ones(4, dtype=torch.float64)
    right = want.float()
    assert not compare_within("y", Within(want, limit), right, right).findings
    for place, value in ((0, 0.0), (1, 3.4e38), (1, -INF), (2, NAN)):
        wrong = right.clone()
        wrong[place] = value
        for twin in (right, None):
            check, message = only(compare_within("y", Within(want, limit), wrong, twin))
            assert check == "nonfinite" and message.startswith(f"y[{place}]")


def test_at_the_largest_number_rounding_decides() -> None:
    top = torch.finfo(BF16).max
    want = torch.tensor([top * (1 + 2.0**-9)], dtype=torch.float64)
    oracle = Within(want, want * 2.0**-8)
    for value, right in ((top, True), (INF, True), (-INF, False), (NAN, False), (0.0, False), (-top, False)):
        assert (not compare_within("y", oracle, torch.tensor([value]).to(BF16), None).findings) == right, value


def test_unspecified_elements_are_not_looked_at() -> None:
    want = torch.zeros(3, dtype=torch.float64)
    defined = torch.tensor([True, False, True])
    report = compare_within("y", Within(want, want + 1, defined), torch.tensor([0.5, NAN, 0.0]), torch.zeros(3))
    assert not report.findings and report.worst == 0.5


def test_rounded_counts_units_in_the_last_place() -> None:
    want = torch.tensor([[1.0, 1.5], [3.0, -2.0]], dtype=torch.float64)
    got = want.to(BF16)
    got[1, 0] = 3.0 + 2 * 2.0**-6  # two units
    report = compare_rounded("y", Rounded(1.0), want, got, None)
    assert only(report)[0] == "limit" and report.worst == pytest.approx(2)
    assert only(report)[1] == (
        "y[1, 0]: got 3.03125, want 3, limit 0.0156, 2 times the limit; 1 of 4 elements beyond it"
    )
    assert not compare_rounded("y", Rounded(2.0), want, got, None).findings


def test_accumulated_has_a_limit_per_element() -> None:
    """A difference that the largest element allows is wrong at a small one, however similar the tensors are."""
    want = torch.tensor([1000.0, 1e-3, 2.0], dtype=torch.float64)
    got = want.clone()
    got[1] += 1e-4
    assert torch.cosine_similarity(got, want, dim=0) > 1 - 1e-12
    check, message = only(compare_accumulated("y", 64, want, want, got.float()))
    assert check == "limit" and message.startswith("y[1]: got 0.00109999") and "1 of 3 elements" in message


def test_a_limit_of_zero_means_equality() -> None:
    want = torch.ones(2, dtype=torch.float64)
    assert not compare_within("y", Within(want, want * 0), want.float(), None).findings
    check, _ = only(compare_within("y", Within(want, want * 0), torch.tensor([1.0, 1.0000001]), None))
    assert check == "limit"


def codes(value: float = 3.0) -> tuple[Codes, torch.Tensor]:
    """A row of 32 channels, 448 and small ones, and its record with the scale 2^0."""
    x = torch.full((1, 32), value, dtype=torch.float64)
    x[0, 0] = 448
    record = torch.cat((x.float().to(torch.float8_e4m3fn).view(torch.uint8), torch.full((1, 1), 127).byte()), 1)
    return Codes(x, x * 2.0**-8, "fp8_32"), record


def test_decided_codes() -> None:
    oracle, record = codes()
    assert not compare_codes("kv", oracle, record).findings
    for place, change, says in ((5, 1, "code[0, 0, 5]: got 0x45"), (32, -1, "scale[0, 0]: got 0x7e")):
        wrong = record.clone()
        wrong[0, place] += change
        first = compare_codes("kv", oracle, wrong).findings[0]
        assert first.check == "decision" and says in first.message and "times the limit" in first.message
    wrong = record.clone()
    wrong[0, 32] = 255
    assert only(compare_codes("kv", oracle, wrong))[0] == "nonfinite"
    wrong = record.clone()
    wrong[0, 7] = 0x7F
    assert only(compare_codes("kv", oracle, wrong)) == ("nonfinite", "kv: code[0, 0, 7] is NaN, the oracle is not")


def test_a_lost_group_has_one_code_throughout() -> None:
    oracle, record = codes()
    oracle.value[0, 3] = NAN
    record[0, 32], record[0, :32] = 255, 0x7F
    assert not compare_codes("kv", oracle, record).findings
    record[0, 9] = 0x45
    says = "kv: code[0, 0, 9]: got code 0x45, must be 0x7f under a NaN scale"
    assert only(compare_codes("kv", oracle, record)) == ("nonfinite", says)


def test_decided_codes_near_a_border_may_be_either() -> None:
    oracle, record = codes(3.125 * (1 + 2.0**-10))  # between 3 and 3.25, nearer to the upper by less than the limit
    for code in (0x44, 0x45):
        record[0, 1:32] = code
        assert not compare_codes("kv", oracle, record).findings
    record[0, 1:32] = 0x46
    assert compare_codes("kv", oracle, record).findings[0].check == "decision"


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1, 0], "keys do not descend at slot 1"),
        ([0, 3], "got id 3 of key 1, want id 1 of key 3"),
        ([0, 0], "want 2 distinct ids in 0..3"),
        ([0, 4], "want 2 distinct ids in 0..3"),
        ([0, 2], "ids 1 and 2 have equal keys, 1 must come first"),
    ],
)
def test_decided_choices(ids: list[int], says: str) -> None:
    key = torch.tensor([[4.0, 3.0, 3.0, 1.0]], dtype=torch.float64)
    oracle = Choice(key, torch.full_like(key, 1e-6))
    assert not compare_choices("experts", oracle, torch.tensor([[0, 1]]), (key,)).findings
    check, message = only(compare_choices("experts", oracle, torch.tensor([ids]), (key,)))
    assert check == "decision" and message.startswith("experts[0]: ") and says in message


def test_reports_add_up() -> None:
    total = Report(worst=0.5) + Report() + Report(worst=0.75)
    assert total == Report(worst=0.75) and Report() + Report() == Report()


def test_an_exception_is_placed_at_the_line_outside_torch() -> None:
    with pytest.raises(AttributeError) as error:
        torch.no_such_name  # noqa: B018
    assert re.search(r"'no_such_name' \(test_compare\.py:\d+, in test_an_exception", str(raised(error.value)))


def test_index_of() -> None:
    shape = torch.Size((2, 3, 4))
    assert [index_of(i, shape) for i in (0, 7, 23)] == ["[0, 0, 0]", "[0, 1, 3]", "[1, 2, 3]"]
