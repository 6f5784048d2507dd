"""What is taken out of texts, and what stays readable."""

import logging
import sys
import threading

import pytest

from midmask.core.redaction import RedactedRecord, has_credentials, passwords_in, redact_output, redacted, secrets_in

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
    "Authorization: Bearer abcdefghijk": "Authorization: Bearer ***",
    "{'password': 'x y', \"api_key\": \"zz\"}": "{'password': '***', \"api_key\": \"***\"}",
    '["{\\"token\\": \\"abc\\"}"]': '["{\\"token\\": \\"***\\"}"]',
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


def test_secrets_of_the_environment_are_known_by_their_names() -> None:
    environment = {
        "MLFLOW_TRACKING_PASSWORD": "one", "HF_TOKEN": "two", "AWS_ACCESS_KEY_ID": "three", "DSN": "x://u:p%40ss@h",
        "PWD": "/work", "TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "4", "HOME": "/root",
    }  # fmt: skip
    assert secrets_in(environment) == {"one", "two", "three", "p%40ss", "p@ss"}
    assert passwords_in("http://me@host/") == set()


def test_every_formatter_gets_a_record_and_a_traceback_without_credentials() -> None:
    try:
        raise ConnectionError("cannot reach http://me:pw@host/")
    except ConnectionError:
        info = sys.exc_info()
    record = RedactedRecord("a", logging.ERROR, "a.py", 1, "no answer from %s", ("http://me:pw@host/",), info)
    text = logging.Formatter("%(message)s").format(record)
    assert text.startswith("no answer from http://***@host/\nTraceback") and text.endswith("reach http://***@host/")
    assert "pw" not in text


def test_a_thread_that_fails_shows_no_credential_and_one_that_exits_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray ends threads that wait for it by SystemExit: an interrupt's last line would be a traceback."""

    def end(error: BaseException) -> None:
        raise error

    for module in (sys, threading):
        monkeypatch.setattr(module, "excepthook", module.excepthook)
    factory = logging.getLogRecordFactory()
    redact_output()
    logging.setLogRecordFactory(factory)
    for error in (SystemExit(0), ValueError("no answer from https://user:pass@host/")):
        thread = threading.Thread(target=end, args=[error])
        thread.start()
        thread.join()
    said = capsys.readouterr().err
    assert "SystemExit" not in said and said.endswith("ValueError: no answer from https://***@host/\n")
