"""HTML that may hold a model's words, made harmless; and pages held to what a reader is promised."""

import re
from pathlib import Path

import bleach
from bleach.css_sanitizer import CSSSanitizer
from bs4 import BeautifulSoup, Tag
from nbconvert.filters.markdown import markdown2html

LARGEST_PAGE = 2_000_000  # bytes

# Split by kind; pictures come from image outputs alone, which carry their own data.
_TAGS = frozenset(
    (
        *(
            "a",
            "abbr",
            "b",
            "br",
            "code",
            "del",
            "em",
            "i",
            "kbd",
            "mark",
            "s",
            "small",
            "span",
            "strong",
            "sub",
            "sup",
        ),
        *("blockquote", "dd", "details", "div", "dl", "dt", "figcaption", "figure", "hr", "li", "ol", "p", "pre", "u"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "section", "style", "summary", "ul"),
        *("caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"),
    )
)
_ATTRIBUTES = frozenset(
    ("aria-label", "class", "colspan", "href", "id", "open", "role", "rowspan", "scope", "style", "title", "width")
)
_CSS = CSSSanitizer(
    allowed_css_properties=[
        *("color", "background-color", "font-weight", "font-style", "text-align", "white-space", "width", "max-width"),
        *("border", "border-color", "border-style", "padding", "margin", "font-family", "font-size", "opacity"),
    ]
)
_FETCHING = re.compile(r"""@import|url\(\s*['"]?(?!data:|#)""")


def safe_html(html: str) -> str:
    """The HTML without anything that runs, loads or leads elsewhere by itself: such a tag becomes text.

    Links stay.
    """
    cleaned = bleach.clean(
        html, tags=_TAGS, attributes={"*": list(_ATTRIBUTES)}, protocols={"http", "https", "mailto"}, css_sanitizer=_CSS
    )
    return re.sub(
        r"(<style>)(.*?)(</style>)", lambda style: style[1] + _harmless(style[2]) + style[3], cleaned, flags=re.DOTALL
    )


def _harmless(sheet: str) -> str:
    return "" if _FETCHING.search(sheet) or "\\" in sheet else sheet


def make_accessible(page: str) -> str:
    """The page with one H1, tables that can be read aloud and scrolled, and an alt text on each picture."""
    soup = BeautifulSoup(page, "html.parser")
    for heading in soup.find_all("h1")[1:]:
        heading.name = "h2"
    for header in soup.find_all("th"):
        if not header.get("scope"):
            header["scope"] = "col" if header.find_parent("thead") else "row"
    for table in soup.find_all("table"):
        table.attrs.pop("border", None)
        table.wrap(soup.new_tag("div", attrs={"class": "scroll", "tabindex": "0"}))
    for image in soup.find_all("img"):
        if not image.get("alt"):
            image["alt"] = "A picture that the notebook does not describe."
    return str(soup)


def faults_of_page(path: Path, largest: int = LARGEST_PAGE) -> list[str]:
    """What keeps the page from being shared: a sentence a fault; none for a good one."""
    text = path.read_text("utf-8")
    soup = BeautifulSoup(text, "html.parser")
    faults = [f"it loads {address[:60]}" for tag in soup.find_all() for address in _loaded(tag)]
    faults += [f"it holds <{tag.name}>" for tag in soup.find_all(["script", "iframe", "object", "embed", "base"])]
    faults += [f"<{tag.name}> has {name}" for tag in soup.find_all() for name in tag.attrs if name.startswith("on")]
    faults += ["a style sheet loads something" for style in soup.find_all("style") if _FETCHING.search(style.text)]
    faults += ["a picture has no alt text" for image in soup.find_all("img") if not image.get("alt")]
    faults += ["a table header has no scope" for header in soup.find_all("th") if not header.get("scope")]
    if (count := len(soup.find_all("h1"))) != 1:
        faults.append(f"it has {count} H1 headings")
    if (size := path.stat().st_size) > largest:
        faults.append(f"it has {size:,} bytes, more than {largest:,}")
    return faults


def _loaded(tag: Tag) -> list[str]:
    """Addresses that a browser would fetch by itself, other than pictures of the same site."""
    names = ("src", "srcset", "data", "poster", "background") + (("href",) if tag.name == "link" else ())
    addresses = [str(tag[name]) for name in names if tag.has_attr(name)]
    return [address for address in addresses if not address.startswith("data:image/")]


def markdown_html(text: str) -> str:
    """Markdown as harmless HTML."""
    return safe_html(markdown2html(text))
