"""The data dictionary, written from the schemas: `python -m analysis.dictionary` rewrites `docs/tables.md`."""

from pathlib import Path

from analysis.schema import ABOUT, SCHEMA_VERSION, TABLES

PATH = Path(__file__).parents[1] / "docs" / "tables.md"
_HEAD = f"""# The tables

<!-- Written by `python -m analysis.dictionary` from `analysis/schema.py`; change the descriptions there. -->

`results/tables/` holds each table as Parquet, with a fixed schema (version {SCHEMA_VERSION}) whose fields carry the
descriptions and units below, and as a CSV copy in which an empty field means null. They hold exactly the studies that
`run:` names in `params.yaml`. To work with them:

```python
import analysis

trials = analysis.load("trials")  # a pandas frame: text is str, numbers that may be null are Int64 or float64
curves = analysis.load("curves")
```

A share is a number from 0 to 1; the unit 1 marks a pure number.
"""


def text() -> str:
    """The data dictionary as Markdown."""
    parts = [_HEAD]
    for name, schema in TABLES.items():
        parts.append(
            f"\n## {name}\n\n{ABOUT[name]}\n\n| column | type | unit | null | what it holds |\n"
            "| --- | --- | --- | --- | --- |\n"
        )
        for field in schema:
            about = {key.decode(): value.decode().replace("|", "\\|") for key, value in field.metadata.items()}
            null = "yes" if field.nullable else "no"
            parts.append(f"| `{field.name}` | {field.type} | {about['unit']} | {null} | {about['description']} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
    print(f"wrote {PATH}")
