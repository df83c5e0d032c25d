"""Numbers of DNS: types, classes, response codes, header bits."""

A, NS, CNAME, SOA, PTR, HINFO, TXT, AAAA, SRV, OPT = 1, 2, 5, 6, 12, 13, 16, 28, 33, 41
IXFR, AXFR, ANY = 251, 252, 255
IN, ANY_CLASS = 1, 255

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16

QR, AA, TC, RD, RA, AD, CD = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080, 0x0020, 0x0010
OPCODE = 0x7800
DO = 0x8000
"""A flag in the TTL field of OPT."""

TYPE_NAMES = {
    A: "A", NS: "NS", CNAME: "CNAME", SOA: "SOA", PTR: "PTR", TXT: "TXT", 15: "MX", AAAA: "AAAA", SRV: "SRV",
    35: "NAPTR", 43: "DS", 48: "DNSKEY", 46: "RRSIG", 47: "NSEC", 50: "NSEC3", IXFR: "IXFR", AXFR: "AXFR", ANY: "ANY",
    65: "HTTPS",
}  # fmt: skip
"""Types that metrics name; CoreDNS counts the rest as `other`."""
RCODE_NAMES = {
    NOERROR: "NOERROR", FORMERR: "FORMERR", SERVFAIL: "SERVFAIL", NXDOMAIN: "NXDOMAIN", NOTIMP: "NOTIMP",
    REFUSED: "REFUSED", BADVERS: "BADVERS",
}  # fmt: skip
