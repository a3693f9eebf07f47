"""Texts by hand on claims that our figures do not bear out, kept beside the records."""

from pathlib import Path

ANALYSES = "analyses"
"""Folder of the texts, one Markdown file for each claim, named by its number."""


def analysis(number: str, folder: Path | None) -> str:
    """The text on a claim, if there is one."""
    path = None if folder is None else folder / f"{number}.md"
    return path.read_text(encoding="utf-8", errors="replace").strip() if path is not None and path.exists() else ""
