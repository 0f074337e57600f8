"""Texts of the scripted model on code, mathematics, Markdown and layout.

They hold what is hard to get back from text: indentation, long runs of blanks, digits at the front, special tokens
spelled as ordinary text.
"""

from kimi_helpers.simulator.scripted_topics import Topic

CODE = Topic(
    "code",
    r"(?i)\b(code|function|python|javascript|sql|script|program|bug|class|implement)\b",
    (
        "A small function is enough, no class is needed.",
        "I have to watch the empty list: `max([])` raises ValueError.",
        "Indentation should be four spaces, and in the Makefile a tab.",
        "Complexity is O(n log n) because of the sort; a heap would give O(n log ⟦digit⟧).",
        "Off-by-one: the range must be `range(⟦digit⟧, ⟦variable⟧ + 1)`.",
        "I'd rather show the code first and explain it in ⟦n⟧ words.",
        "In ⟦language⟧ one would write `⟦variable⟧.⟦verb⟧()`, but they asked for ⟦language⟧.",
        "The mask is ⟦hex⟧, so the low bits stay.",
        "`<|im_end|>` in their prompt is text, not a control token.",
    ),
    (
        (
            "```python\n"
            "def running_mean(values, ⟦variable:a⟧):\n"
            '    """Mean of the last `⟦variable:a⟧` ⟦noun⟧."""\n'
            "    total = 0.0\n"
            "    for place, value in enumerate(values):\n"
            "        total += value\n"
            "        if place >= ⟦variable:a⟧:\n"
            "            total -= values[place - ⟦variable:a⟧]\n"
            "        yield total / min(place + 1, ⟦variable:a⟧)\n"
            "```\n\n"
            "It keeps one sum and never looks at a value more than twice."
        ),
        (
            "```python\n"
            "def ⟦verb:a⟧_⟦noun:a⟧(⟦noun:a⟧, limit=⟦n⟧):\n"
            "    ⟦variable:b⟧ = {}\n"
            "    for key, value in ⟦noun:a⟧.items():\n"
            "        if value > limit:\n"
            "            ⟦variable:b⟧[key] = value % ⟦n⟧\n"
            "    return ⟦variable:b⟧\n\n\n"
            "assert ⟦verb:a⟧_⟦noun:a⟧({}) == {}\n"
            "```"
        ),
        (
            "Here is the rule with a tab in front of the recipe:\n\n"
            "```make\n"
            "all: build\n"
            "\t@echo done in ⟦decimal⟧ s\n\n"
            "build:\n"
            "\tcc -O⟦digit⟧ -o ⟦variable:a⟧ ⟦variable:a⟧.c \\\n"
            "\t\t-lm\n"
            "```\n\n"
            "Replace the tabs by spaces and make stops with *missing separator*."
        ),
        (
            "```javascript\n"
            "const ⟦variable:a⟧ = ⟦noun⟧.reduce((seen, row) => {\n"
            "  (seen[row.key] ??= []).push(row);\n"
            "  return seen;\n"
            "}, {});\n"
            "```\n"
            "`??=` needs Node 15 or later. Before that:\n\n"
            "```javascript\n"
            "if (!seen[row.key]) { seen[row.key] = []; }\n"
            "```"
        ),
        (
            "SELECT name, COUNT(*) AS n\n"
            "  FROM ⟦noun⟧\n"
            " WHERE placed >= '⟦date⟧'\n"
            " GROUP BY name\n"
            "HAVING COUNT(*) > ⟦n⟧\n"
            " ORDER BY n DESC, name;\n\n"
            "Add an index on (placed, name), or the scan reads every page."
        ),
        (
            '{\n  "⟦variable⟧": ⟦n⟧,\n  "⟦noun⟧": ["⟦name⟧", null, ⟦decimal⟧],\n  "ok": true\n}\n\n'
            "Two blanks of indentation, and no comma behind the last member."
        ),
        (
            "In the chat template a user turn reads `<|im_user|>user<|im_middle|>hello<|im_end|>`;"
            " written out in an answer like this one, `<|im_end|>` and `[EOS]` are ordinary text and end"
            " nothing."
        ),
        "Split the log line on `</think>`: what stands in front of it, after `<think>`, took ⟦n⟧ tokens.",
        "The pointer ⟦hex⟧ is ⟦n⟧ bytes behind `⟦variable⟧`; in ⟦language⟧ that is undefined behaviour.",
    ),
)

MATHEMATICS = Topic(
    "mathematics",
    r"(?i)(\d\s*[-+*/×÷^=]\s*\d|\b(calculate|compute|prove|integral|equation|sum of|how many|square)\b)",
    (
        "Let me compute 17 × 23 = 391 by splitting: 17·20 + 17·3 = 340 + 51.",
        "The discriminant is b² − 4ac = ⟦n⟧ − ⟦n⟧, so both roots are rational.",
        "Check with n = ⟦digit⟧: the left side is ⟦n:a⟧, the right side is ⟦n:a⟧ too.",
        "Wait, 1/3 + 1/6 is 1/2, not 2/9.",
        "Units: metres per second times seconds gives metres.",
        "The limit is e, as (1 + 1/n)^n ≈ 2.71828 for n = ⟦n⟧.",
        "⟦thousands⟧ divided by ⟦n⟧ is about ⟦decimal⟧.",
        "Mod ⟦n⟧ this is ⟦digit⟧, so the sum can't be a square.",
    ),
    (
        "391\n\nBecause 17 · 23 = 17 · 20 + 17 · 3 = 340 + 51.",
        "⟦n⟧",
        "⟦decimal⟧ ⟦unit⟧",
        (
            "Let $f(x) = x^2 - ⟦n⟧x + ⟦digit⟧$. Then\n\n"
            "$$f(x) = (x - 2)(x - 3), \\qquad f'(x) = 2x - ⟦n⟧,$$\n\n"
            "so the roots are $x = ⟦digit⟧$ and $x = ⟦digit⟧$ and the vertex lies at $\\left(\\tfrac{5}{2},"
            " -\\tfrac{1}{4}\\right)$."
        ),
        (
            "1. Induction start: for n = 1 both sides are ⟦digit⟧.\n"
            "2. Step: if 1 + … + n = n(n+1)/2, then adding n + 1 gives (n+1)(n+2)/2.\n"
            "3. Hence the formula holds for every n ≥ ⟦n⟧. ∎"
        ),
        "3.14159265358979323846 is enough for any engineer; 355/113 = 3.1415929 is off by 0.00000027.\n",
        "⟦digit⟧ × ⟦digit⟧ + ⟦n⟧ = ⟦n:a⟧, and ⟦n:a⟧ / ⟦n⟧ = ⟦decimal⟧.",
        "\\[ \\sum_{k=1}^{⟦n⟧} \\frac{(-1)^k}{k^{⟦digit⟧}} \\approx -⟦decimal⟧ \\]",
        "⟦thousands⟧ = 2^⟦digit⟧ · 3^⟦digit⟧ · ⟦n⟧; so it has ⟦n⟧ divisors, ±1 counted.",
    ),
)

MARKDOWN = Topic(
    "Markdown",
    r"(?i)\b(table|list|compare|difference|steps|markdown|summary|summarise|summarize)\b",
    (
        "A table with ⟦digit⟧ columns is the clearest.",
        "Headings would be too much for so short a text.\n\nStill, a bold word or two helps.",
        "- first the cost\n- then the time\n- then what can go wrong",
        "I need to escape the pipe inside the cell.",
        "1. read it\n2. answer in ⟦n⟧ words\n3. stop",
    ),
    (
        (
            "| Metal | Melts at | Price |\n"
            "|:------|---------:|:-----:|\n"
            "| tin   |   ⟦n⟧ °C | €€    |\n"
            "| lead  |   327 °C | €     |\n"
            "| ⟦material⟧  | ⟦n⟧ °C | €     |\n\n"
            "**Tin** is the easy one to cast at home."
        ),
        (
            "## Steps\n\n"
            "1. **Measure** the ⟦thing⟧, twice.\n"
            "   - inside width: ⟦decimal⟧ cm\n"
            "   - inside height\n"
            "2. **Cut** ⟦digit⟧ mm short.\n"
            "3. Fit it, *then* glue.\n\n"
            "> Never glue first.\n\n"
            "---\n\n"
            "See also [frames](https://example.org/frames?id=⟦n⟧&lang=en#top)."
        ),
        (
            "* Cycling: cheap, quick in ⟦city⟧, wet in rain.\n"
            "* Bus: dry, slow.\n"
            "* Car: ~~cheap~~ dear, and you still have to park it.\n\n"
            "So: **bike**, unless it's below -⟦digit⟧ °C."
        ),
        "- [x] get ⟦material⟧\n- [ ] sand the ⟦thing⟧ (⟦n⟧ grit)\n    - [ ] twice\n- [ ] ⟦name⟧  \n  before ⟦date⟧",
        "### ⟦name⟧'s ⟦thing⟧\n\n`⟦hex⟧` — _see note_[^⟦digit:a⟧]\n\n[^⟦digit:a⟧]: Only in ⟦city⟧, since ⟦year⟧.",
        "<details>\n<summary>⟦n⟧ more</summary>\n\n&nbsp;&nbsp;⟦thing⟧ &amp; ⟦thing⟧\n\n</details>",
    ),
)

LAYOUT = Topic(
    "layout",
    r"(?i)\b(ascii|draw|diagram|tree|layout|align|columns|whitespace)\b",
    (
        "The columns have to line up, so I count blanks:⟦blanks⟧ten.",
        "Let me sketch it.\n\n\n\n    a\n   / \\\n  b   c",
        "A fixed-width font is safe to assume.",
        "Tabs or blanks?\t\tBlanks;⟦newlines⟧a tab is ⟦digit⟧ wide here and 4 there.",
    ),
    (
        (
            "                    root\n"
            "                   /    \\\n"
            "              left        right\n"
            "             /    \\            \\\n"
            "          leaf     leaf          leaf\n\n\n\n"
            "Three leaves, two levels."
        ),
        (
            "name                                    amount\n"
            "----                                    ------\n"
            "⟦thing⟧⟦blanks⟧⟦decimal⟧\n"
            "⟦thing⟧⟦blanks⟧⟦decimal⟧⟦newlines⟧"
            "total                                     6.10   \n"
        ),
        (
            "project/\n"
            "├── data/\n"
            "│   ├── ⟦noun⟧.csv\n"
            "│   └── clean.csv\n"
            "├── src/\n"
            "│   └── ⟦variable⟧.py\n"
            "└── README.md\t\t# start here"
        ),
        "⟦blanks⟧⟦n⟧\n⟦blanks⟧⟦n⟧\n⟦blanks⟧------\n⟦blanks⟧⟦thousands⟧",
        "+------+\n|⟦blanks⟧|\n| ⟦name⟧ |\n+------+\r\n\r\n\tindented by a tab,\r\n\t\tthen by two",
    ),
)

TECHNICAL_TOPICS = (CODE, MATHEMATICS, MARKDOWN, LAYOUT)
