import pytest

from podwire.kinds.crds.formats import test_of as format_test


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("byte", "Zm9v", "Zm9"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-01-01T00:00:00Z", "2024-01-01 00:00"),
        ("duration", "1h30m", "soon"),
        ("email", "a@b.c", "a.b.c"),
        ("hostname", "a.example", "-a"),
        ("ipv4", "1.2.3.4", "1.2.3"),
        ("ipv6", "fd00::1", "1.2.3.4"),
        ("k8s-long-name", "a.b", "A"),
        ("k8s-short-name", "a-b", "a.b"),
        ("mac", "00:11:22:33:44:55", "00:11"),
        ("uri", "https://a/b?c", "not a uri"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    ],
)
def test_a_format_accepts_only_values_of_its_syntax(name, good, bad):
    test = format_test(name)
    assert test is not None
    assert test(good)
    assert not test(bad)


def test_an_unknown_format_asks_for_nothing():
    assert format_test("moon-phase") is None
