"""Documents of every kind, written to disk with the standard library and pyarrow."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.corpora.documents import KINDS, ending
from midmask.corpora.documents.blocks import DocumentFile, ParsedDocument, TextBlock
from midmask.store.place import Place
from tests.support.corpora.collections import write


def pdf(pages: Sequence[str], title: str = "") -> bytes:
    """A PDF with these texts, one a page: a font, and for each line of a page a `Tj`."""
    bodies = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        shown = " T* ".join(f"({line}) Tj" for line in page.split("\n"))
        stream = f"BT /F1 10 Tf 12 TL 40 700 Td {shown} ET"
        kids.append(len(bodies) + 1)
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {len(bodies) + 2} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        bodies.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    listed = " ".join(f"{kid} 0 R" for kid in kids)
    bodies[1] = f"<< /Type /Pages /Kids [{listed}] /Count {len(kids)} >>"
    bodies.append(f"<< /Title ({title}) >>")
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, start=1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}trailer\n"
    end += f"<< /Size {len(bodies) + 1} /Root 1 0 R /Info {len(bodies)} 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + end.encode()


def write_documents(folder: Path) -> None:
    """One document of each kind, in several folders, and files that are none."""
    write(folder / "notes.txt", b"First words of the notes.\n\nSecond paragraph,\nof two lines.\n")
    write(folder / "guide/install.md", b"# Install\n\nRead this.\n\n## Linux\n\nType `make`.\n\n- one\n- two\n")
    write(folder / "guide/use.rst", b"Use\n===\n\nSee :ref:`there <x>`.\n\nMore\n----\n\nAnd ``code``.\n")
    write(folder / "web/page.html", b"<title>Site</title><nav>menu</nav><h1>Page</h1><p>Some <b>bold</b> text.</p>")
    write(folder / "paper.pdf", pdf(["A page of a pa-\nper.", "And another page."], "The Paper"))
    write(folder / "tables/faq.csv", b"id,text,title\n1,an answer in a row,Question\n2,another one,\n")
    write(folder / "tables/faq.tsv", b"text\tn\ntext of a tsv\t1\n")
    write(folder / "tables/faq.jsonl", b'{"text": "text of a line", "title": "Line"}\n')
    (folder / "tables").mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": [1, 2], "text": ["the first text", "the second"]}), folder / "tables/x.parquet")
    write(folder / "logo.png", b"\x89PNG")
    write(folder / "tool.py", b"print()")


def extracted_text(blocks: Iterable[TextBlock]) -> str:
    """The text of a document, to which offsets refer."""
    parts = [part for block in blocks for part in (block.before, block.text)]
    return "".join(parts[1:])


def blocks_of(path: Path, **columns: str) -> list[list[TextBlock]]:
    """The blocks of each document of a file."""
    found = KINDS[ending(path.name)].read(DocumentFile(path.name, Place(str(path)), **columns))
    return [list(document.blocks) for document in found if isinstance(document, ParsedDocument)]
