"""Which addresses are connected to for clients."""

import ipaddress
from collections.abc import Sequence

import pytest

from tutti_server.app.files.addresses import AddressRefused, AddressRules, is_public


def rules(hosts: Sequence[str] = ("*",), found: Sequence[str] = ("93.184.215.14",), networks: str = "") -> AddressRules:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return found

    private = [ipaddress.ip_network(networks)] if networks else []
    return AddressRules("url_hosts", hosts, private_networks=private, resolve=resolve)


@pytest.mark.parametrize(
    "address",
    """127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 240.0.0.1
    192.0.2.1 198.18.0.1 ::1 :: fe80::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1
    64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2001:0:7f00:1:: 2001:db8::1 fe80::1%eth0""".split(),
)
async def test_no_private_address_is_connected_to(address: str) -> None:
    """Neither alone nor beside a public one, in whatever form it comes."""
    for found in ([address], ["93.184.215.14", address]):
        with pytest.raises(AddressRefused, match="public addresses only"):
            await rules(found=found).target("https://example.org/a.wav")


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "1.1.1.1"])
async def test_public_addresses_are_connected_to(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    assert (await rules(found=[address]).target("https://example.org/a")).addresses == (address,)


async def test_the_operator_may_allow_private_networks() -> None:
    """Those alone; an IPv4 address in an IPv6 one counts as itself."""
    for address in ("10.1.2.3", "::ffff:10.1.2.3"):
        target = await rules(found=[address], networks="10.1.0.0/16").target("https://minio.example.org/")
        assert target.addresses == (address,)
    with pytest.raises(AddressRefused):
        await rules(found=["10.2.0.1"], networks="10.1.0.0/16").target("https://minio.example.org/")


async def test_an_address_without_encryption_leads_to_private_networks_alone() -> None:
    own = "http://minio.example.org/"
    assert (await rules(found=["10.1.2.3"], networks="10.1.0.0/16").target(own)).addresses == ("10.1.2.3",)
    for found in (["93.184.215.14"], ["10.1.2.3", "93.184.215.14"], ["10.2.0.1"], []):
        with pytest.raises(AddressRefused):
            await rules(found=found, networks="10.1.0.0/16").target(own)


@pytest.mark.parametrize(
    ("host", "patterns", "is_allowed"),
    [
        ("example.org", ("example.org",), True),
        ("EXAMPLE.org.", ("example.org",), True),
        ("a.example.org", ("example.org",), False),
        ("a.b.example.org", ("*.example.org",), True),
        ("example.org", ("*.example.org",), False),
        ("notexample.org", ("*.example.org",), False),
        ("example.org.evil.net", ("example.org", "*.example.org"), False),
        ("example.org@evil.net", ("example.org",), False),
        ("anything.net", ("*",), True),
    ],
)
def test_hosts_are_those_of_the_operator(host: str, patterns: tuple[str, ...], is_allowed: bool) -> None:
    url = f"https://{host}/a.wav"
    if is_allowed:
        assert rules(patterns).check(url).path == "/a.wav"
        return
    with pytest.raises(AddressRefused, match="a host that the operator allows"):
        rules(patterns).check(url)


@pytest.mark.parametrize(
    "url",
    [
        *("http://a/", "ftp://a/", "file:///etc/passwd", "gopher://a/", "https://", "a", "", "https://a:0/"),
        *("https://a:x/", "https://a b/", "https://a/\r\nx: y", "https://\u00e4/", "https://[::1"),
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(AddressRefused, match="expected an address that begins with https://"):
        rules().check(url)


def test_nothing_is_allowed_by_default() -> None:
    with pytest.raises(AddressRefused, match="its operator can allow hosts: TUTTI_URL_HOSTS"):
        rules(()).check("https://example.org/")
