"""Changes by a reverse proxy: headers, redirects, links."""

import pytest

from podwire.protocols.forwarding import MAX_TAG, HtmlRewriter, Links, request_headers, response_headers

LINKS = Links(backend="10.0.0.1:80", host="api:6443", prefix="/p/proxy")


def test_headers_of_the_connection_and_for_the_api_server_stay_here():
    sent = {
        "host": "api", "connection": "keep-alive, X-Mine", "x-mine": "1", "te": "trailers", "cookie": "a=b",
        "authorization": "Bearer secret", "impersonate-user": "jane", "x-remote-user": "jane", "upgrade": "h2c",
        "x-remote-extra-scopes": "x", "transfer-encoding": "chunked",
    }  # fmt: skip
    assert request_headers(sent, "1.2.3.4") == [("host", "api"), ("cookie", "a=b"), ("x-forwarded-for", "1.2.3.4")]


def test_the_clients_address_is_appended():
    assert request_headers({"x-forwarded-for": "9.9.9.9"}, "1.2.3.4") == [("x-forwarded-for", "9.9.9.9, 1.2.3.4")]
    assert request_headers({"x-forwarded-for": "9.9.9.9"}, "") == [("x-forwarded-for", "9.9.9.9")]


def test_answers_keep_their_headers_but_those_of_the_connection_and_of_cors():
    answer = [("Connection", "x-own"), ("X-Own", "1"), ("Access-Control-Allow-Origin", "*"), ("Set-Cookie", "a"),
              ("Set-Cookie", "b"), ("Transfer-Encoding", "chunked")]  # fmt: skip
    assert response_headers(answer) == [("Set-Cookie", "a"), ("Set-Cookie", "b")]


@pytest.mark.parametrize(
    ("url", "rewritten"),
    [
        ("/a", "/p/proxy/a"),
        ("/a/?x=1#y", "/p/proxy/a/?x=1#y"),
        ("http://10.0.0.1:80/x", "/p/proxy/x"),
        ("https://api:6443/x", "https://api:6443/p/proxy/x"),
        ("/p/proxy/a", "/p/proxy/a"),
        ("a/b", "a/b"),
        ("http://other/x", "http://other/x"),
        ("//other/x", "//other/x"),
        ("http://[broken", "http://[broken"),
        ("", ""),
        ("mailto:a@b", "mailto:a@b"),
    ],
)
def test_urls_of_the_backend_lead_through_the_proxy(url, rewritten):
    assert LINKS.rewrite(url) == rewritten


PAGE = (
    b"<!DOCTYPE html><html><a class=x HREF='/x?a=1&amp;b=2'>t</a><!-- <a href=\"/no\"> --><p>1 < 2"
    b'<script src="/s.js">var x = "<a href=/no>";</script><img src=/i.png alt=">"><a href="https://other/">'
    b'<title><a href="/no"></title><a title="it\'s" href=rel></html><'
)
REWRITTEN = (
    b'<!DOCTYPE html><html><a class=x HREF="/p/proxy/x?a=1&amp;b=2">t</a><!-- <a href="/no"> --><p>1 < 2'
    b'<script src="/p/proxy/s.js">var x = "<a href=/no>";</script><img src="/p/proxy/i.png" alt=">">'
    b'<a href="https://other/"><title><a href="/no"></title><a title="it\'s" href=rel></html><'
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_links_of_a_page_are_rewritten_however_it_is_cut(size):
    page = HtmlRewriter(LINKS)
    pieces = [page.feed(PAGE[start : start + size]) for start in range(0, len(PAGE), size)]
    assert b"".join(pieces) + page.close() == REWRITTEN


def test_a_tag_without_end_passes_and_is_not_kept():
    page = HtmlRewriter(LINKS)
    sent = b'<a href="' + b"x" * 3 * MAX_TAG
    out = b"".join(page.feed(sent[start : start + 4096]) for start in range(0, len(sent), 4096))
    assert len(out) > MAX_TAG
    assert out + page.close() == sent
