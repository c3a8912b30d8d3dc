"""A page as a reader's programs see it: tags that close, tables as lists of cells."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """`rows[label]` are a score table's cells as (text, attributes); `tags` every start tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict]] = []
        self.tables: list[dict[str, list[tuple[str, dict]]]] = []
        self._open: list[str] = []
        self._cells: list[list] = []
        self._is_scores = False  # inside a score table
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._is_scores = dict(attrs).get("class") == "scores"
            self.tables += [{}] if self._is_scores else []
        if tag == "tr":
            self._cells = []
        if tag in ("td", "th"):
            self._cells.append(["", dict(attrs)])

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> inside {self._open[-3:]}"
        self._open.pop()
        if tag == "tr" and self._is_scores and self._cells and self._cells[0][1].get("scope") == "row":
            self.tables[-1][self._cells[0][0].strip()] = [(text, attributes) for text, attributes in self._cells[1:]]

    def handle_data(self, data: str) -> None:
        if self._cells and ("td" in self._open or "th" in self._open):
            self._cells[-1][0] += data
