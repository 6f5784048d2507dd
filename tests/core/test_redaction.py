"""What is taken out of texts, and what stays readable."""

import pytest

from midmask.core.redaction import has_credentials, redacted

HIDDEN = {
    "https://user:pa/ss@host:80/x": "https://***@host:80/x",
    "see postgresql://me:pw@h/d now": "see postgresql://***@h/d now",
    "http://TOKEN@host/": "http://***@host/",
    "s3://AKIA:sec/ret+x@bucket/p": "s3://***@bucket/p",
    "https://h/p?sig=abc%2F&x=1": "https://h/p?sig=***&x=1",
    "s3://b/k?a=1&X-Amz-Signature=abc&z=2": "s3://b/k?a=1&X-Amz-Signature=***&z=2",
    "s3://b/k?X-Amz-Credential=AK%2F20": "s3://b/k?X-Amz-Credential=***",
    "s3://b?secret_access_key=AB/c+d=&z=1": "s3://b?secret_access_key=***&z=1",
    "AccountName=a;AccountKey=abc==;EndpointSuffix=x": "AccountName=a;AccountKey=***;EndpointSuffix=x",
    "account_key=abc, AWS_SECRET_ACCESS_KEY=abc": "account_key=***, AWS_SECRET_ACCESS_KEY=***",
}
PLAIN = [
    "mail me@example.org, beir:/x/y",
    "http://127.0.0.1:5000/#/experiments/1",
    "sqlite:////tmp/a.db",
    "--set tokens.vocabulary_size=300 max_tokens=5 tokenkey=3",
    "unknown token: foo",
    "a basic idea",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_credentials_do_not_show(text: str) -> None:
    assert redacted(text) == HIDDEN[text] == redacted(redacted(text))


@pytest.mark.parametrize("text", PLAIN)
def test_other_text_stays(text: str) -> None:
    assert redacted(text) == text and not has_credentials(text)
    assert not has_credentials("abfss://container@account.dfs.core.windows.net/x")
