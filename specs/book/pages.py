"""The preprocessor of the book: makes one book of pages and code that stand where they belong.

`SUMMARY.md` links to pages anywhere in the repository. This program gives each a place in the book,
adds the pages of a spec's fields below their index, and turns links between pages into links
between chapters. A link to a file that is no chapter becomes the file's path.

`pages.py check FOLDER` looks for broken links in the built book.
"""

import base64
import json
import os
import re
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = "specs/book/src"
FIELDS = "specs/book/fields"
LINK = re.compile(r'(!?)\[((?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*)\]\(([^)\s]+)\)|(<img src=")([^"]+)(")')
FENCE = re.compile(r"^\s*```", re.M)


def place(page: str) -> str:
    """Where a page of the repository stands in the book."""
    page = page.removeprefix(f"{SRC}/")
    folder, name = os.path.split(page)
    return os.path.join(folder, "index.md" if name == "README.md" else name)


class Book:
    def __init__(self, items):
        self.places = {}
        for chapter in self.chapters(items):
            source = os.path.normpath(os.path.join(SRC, chapter["path"]))
            chapter["source"] = source
            self.places[source] = place(source)
        for chapter in list(self.chapters(items)):
            if chapter["source"] == "specs/README.md":
                self.add_fields(chapter)
        for chapter in list(self.chapters(items)):
            source = chapter.pop("source")
            chapter["path"] = self.places[source]
            chapter["content"] = self.page(chapter["content"], source, chapter["path"])

    def chapters(self, items):
        for item in items:
            if isinstance(item, dict) and "Chapter" in item and item["Chapter"]["path"]:
                yield item["Chapter"]
                yield from self.chapters(item["Chapter"]["sub_items"])

    def add_fields(self, chapter):
        """Makes a chapter of each page of fields."""
        for number, page in enumerate(sorted((ROOT / FIELDS).glob("*.md")), 1):
            source, content = f"{FIELDS}/{page.name}", page.read_text()
            self.places[source] = f"fields/{page.name}"
            made = {
                "name": content.partition("\n")[0].replace("`", "").strip("# "),
                "content": content,
                "number": [*(chapter["number"] or []), number],
                "sub_items": [],
                "path": source,
                "source_path": None,
                "parent_names": [*chapter["parent_names"], chapter["name"]],
                "source": source,
            }
            chapter["sub_items"].append({"Chapter": made})

    def page(self, text, source, at):
        """A page with its links turned into the book's."""
        fences = FENCE.split(text)
        marks = FENCE.findall(text)
        for i in range(0, len(fences), 2):
            fences[i] = LINK.sub(lambda m: self.link(m, source, at), fences[i])
        return "".join(a + b for a, b in zip(fences, [*marks, ""], strict=True))

    def link(self, match, source, at):
        bang, text, target = match[1], match[2], match[3] or match[5]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(source), path)) if path else source
        if os.path.splitext(there)[1] in (".png", ".svg"):
            image = self.image(there)
            return f"![{text}]({image})" if bang else f"{match[4]}{image}{match[6]}"
        if (ROOT / there).is_dir() and f"{there}/README.md" in self.places:
            there += "/README.md"
        if there in self.places:
            to = self.places[there]
        elif (ROOT / there).exists():
            return text if there in text else f"{text} (`{there}`)"
        else:
            raise SystemExit(f"{source}: {target} is not there")
        if text:
            text = self.links_in(text, source, at)
        to = os.path.relpath(to, os.path.dirname(at) or ".")
        return f"[{text}]({to}{'#' + anchor if anchor else ''})"

    def links_in(self, text, source, at):
        return LINK.sub(lambda m: self.link(m, source, at), text)

    def image(self, path):
        """The picture itself, so that a page stands alone."""
        kind = {".png": "image/png", ".svg": "image/svg+xml"}[os.path.splitext(path)[1]]
        data = base64.b64encode((ROOT / path).read_bytes()).decode()
        return f"data:{kind};base64,{data}"


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links = set(), []

    def handle_starttag(self, tag, attributes):
        about = dict(attributes)
        self.ids.add(about.get("id"))
        if (to := about.get("href") or about.get("src")) and "://" not in to:
            self.links.append(to)


def check(folder):
    pages = {}
    for path in Path(folder).resolve().rglob("*.html"):
        pages[path] = Links()
        pages[path].feed(path.read_text())
    broken = []
    for path, page in pages.items():
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in page.links:
            to, _, anchor = urllib.parse.unquote(link).partition("#")
            if to.startswith(("data:", "mailto:", "javascript:")):
                continue
            there = (path.parent / to).resolve() if to else path
            if not there.exists():
                broken.append(f"{path.name}: {link}")
            elif anchor and there in pages and anchor not in pages[there].ids:
                broken.append(f"{path.name}: {link} has no such heading")
    print(*broken, f"{len(pages)} pages, {len(broken)} broken links", sep="\n")
    return bool(broken)


def main():
    if sys.argv[1:2] == ["supports"]:
        return 0
    if sys.argv[1:2] == ["check"]:
        return check(sys.argv[2])
    _, book = json.load(sys.stdin)
    Book(book.get("items") or book.get("sections"))
    json.dump(book, sys.stdout)
    return 0


sys.exit(main())
