"""What the scripted model says: reasoning and answers by topic, in texts of the project's own.

They hold what is hard to get back from text: indentation, long runs of blanks, digits and Han characters at the
front, characters of several tokens, line separators that are no newlines, special tokens spelled as ordinary text.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A subject the model can talk about.

    Attributes:
        name: what it covers.
        cue: a regular expression; a user message that it finds asks for this topic.
        reasoning: sentences that a line of thought is put together from.
        answers: whole answers.
    """

    name: str
    cue: str
    reasoning: tuple[str, ...]
    answers: tuple[str, ...]


CODE = Topic(
    "code",
    r"(?i)\b(code|function|python|javascript|sql|script|program|bug|class|implement)\b",
    (
        "A small function is enough, no class is needed.",
        "I have to watch the empty list: `max([])` raises ValueError.",
        "Indentation should be four spaces, and in the Makefile a tab.",
        "Complexity is O(n log n) because of the sort; a heap would give O(n log k).",
        "Off-by-one: the range must be `range(1, n + 1)`.",
        "I'd rather show the code first and explain it in two lines.",
    ),
    (
        (
            "```python\n"
            "def running_mean(values, width):\n"
            '    """Mean of the last `width` values."""\n'
            "    total = 0.0\n"
            "    for place, value in enumerate(values):\n"
            "        total += value\n"
            "        if place >= width:\n"
            "            total -= values[place - width]\n"
            "        yield total / min(place + 1, width)\n"
            "```\n\n"
            "It keeps one sum and never looks at a value more than twice."
        ),
        (
            "Here is the rule with a tab in front of the recipe:\n\n"
            "```make\n"
            "all: build\n"
            "\t@echo done\n\n"
            "build:\n"
            "\tcc -O2 -o app main.c \\\n"
            "\t\t-lm\n"
            "```\n\n"
            "Replace the tabs by spaces and make stops with *missing separator*."
        ),
        (
            "```javascript\n"
            "const groups = rows.reduce((seen, row) => {\n"
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
            "  FROM orders\n"
            " WHERE placed >= '2024-01-01'\n"
            " GROUP BY name\n"
            "HAVING COUNT(*) > 3\n"
            " ORDER BY n DESC, name;\n\n"
            "Add an index on (placed, name), or the scan reads every page."
        ),
        (
            "In the chat template a user turn reads `<|im_user|>user<|im_middle|>hello<|im_end|>`;"
            " written out in an answer like this one, `<|im_end|>` and `[EOS]` are ordinary text and end"
            " nothing."
        ),
    ),
)

MATHEMATICS = Topic(
    "mathematics",
    r"(?i)(\d\s*[-+*/×÷^=]\s*\d|\b(calculate|compute|prove|integral|equation|sum of|how many|square)\b)",
    (
        "Let me compute 17 × 23 = 391 by splitting: 17·20 + 17·3 = 340 + 51.",
        "The discriminant is b² − 4ac = 49 − 24 = 25, so both roots are rational.",
        "Check with n = 1: the left side is 1, the right side is 1·2/2 = 1.",
        "Wait, 1/3 + 1/6 is 1/2, not 2/9.",
        "Units: metres per second times seconds gives metres.",
        "The limit is e, as (1 + 1/n)^n ≈ 2.71828 for n = 100000.",
    ),
    (
        "391\n\nBecause 17 · 23 = 17 · 20 + 17 · 3 = 340 + 51.",
        "42",
        (
            "Let $f(x) = x^2 - 5x + 6$. Then\n\n"
            "$$f(x) = (x - 2)(x - 3), \\qquad f'(x) = 2x - 5,$$\n\n"
            "so the roots are $x = 2$ and $x = 3$ and the vertex lies at $\\left(\\tfrac{5}{2},"
            " -\\tfrac{1}{4}\\right)$."
        ),
        (
            "1. Induction start: for n = 1 both sides are 1.\n"
            "2. Step: if 1 + … + n = n(n+1)/2, then adding n + 1 gives (n+1)(n+2)/2.\n"
            "3. Hence the formula holds for every n ≥ 1. ∎"
        ),
        "3.14159265358979323846 is enough for any engineer; 355/113 = 3.1415929 is off by 0.00000027.\n",
        "7 × 8 = 56, 56 + 1234567 = 1234623, and 1234623 / 3 = 411541.",
    ),
)

CHINESE = Topic(
    "Chinese",
    r"[\u4e00-\u9fff]",
    (
        "这个问题可以分成两步来看。",
        "首先确认用户说的“周末”是指星期六和星期日。",
        "答案不必太长，三四句话就够了。",
        "注意全角标点：逗号是“，”，句号是“。”。",
        "如果按2023年的数据，增长率大约是3.7%。",
        "最后再检查一遍有没有错别字。",
    ),
    (
        "中国的二十四节气始于立春，终于大寒。古人用它安排农事：惊蛰前后开始春耕，芒种时收麦插秧，霜降以后田里就清闲了。",
        "第一步：把米淘洗两遍，加一比一点二的水。\n第二步：大火煮开，转小火焖15分钟。\n第三步：关火后再焖10分钟，不要揭盖。",
        "《静夜思》是李白的五言绝句，全诗只有二十个字，写的是月光、霜和思乡。\n\n要点：\n- 用词浅白\n- 意境深远",
        "挑衅与辅助是两个完全不同的词：前者指故意惹人生气，后者指从旁帮助。",
        "3个苹果加5个梨，一共8个水果。",
        '用Python的`len("你好")`得到2，因为它数的是字符；编码成UTF-8以后是6个字节。',
    ),
)

PROSE = Topic(
    "prose",
    r"(?i)\b(story|explain|why|who|describe|history|poem|letter|write|tell)\b",
    (
        "They probably know the basics, so I can skip the definition.",
        "Two paragraphs should do; a list would look stiff.",
        "I shouldn't claim a date I am not sure of.",
        "What's the simplest example? A candle under a glass.",
        "It'd be wrong to call this a law; it is a rule of thumb.",
        "Keep the tone friendly, don't lecture.",
    ),
    (
        (
            "The lamp in the harbour office went out at ten. Marta counted the boats by their sounds"
            " instead: the long creak was the ferry, the quick tapping was her brother's skiff. She'd"
            " never told him she could hear him leave."
        ),
        (
            "Bread goes stale even in a closed box because its starch slowly crystallises and lets go of"
            " water. Warmth undoes that for a while, which is why yesterday's roll tastes fresh from the"
            " oven and hard again an hour later."
        ),
        (
            "Dear neighbours,\n\n"
            "the stairs will be painted on Thursday. Please use the back door until six o'clock, and"
            " keep children and pets away from the railings.\n\n"
            "Yours,\n"
            "the house committee\n"
        ),
        (
            "It's the tilt of the Earth's axis, not its distance from the Sun. In January we're about 5"
            " million km closer than in July, and yet it's winter in the north: the light falls in at a"
            " low angle and the days are short."
        ),
    ),
)

MARKDOWN = Topic(
    "Markdown",
    r"(?i)\b(table|list|compare|difference|steps|markdown|summary|summarise|summarize)\b",
    (
        "A table with three columns is the clearest.",
        "Headings would be too much for so short a text.\n\nStill, a bold word or two helps.",
        "- first the cost\n- then the time\n- then what can go wrong",
        "I need to escape the pipe inside the cell.",
    ),
    (
        (
            "| Metal | Melts at | Price |\n"
            "|:------|---------:|:-----:|\n"
            "| tin   |   232 °C | €€    |\n"
            "| lead  |   327 °C | €     |\n"
            "| iron  | 1 538 °C | €     |\n\n"
            "**Tin** is the easy one to cast at home."
        ),
        (
            "## Steps\n\n"
            "1. **Measure** the window, twice.\n"
            "   - inside width\n"
            "   - inside height\n"
            "2. **Cut** 3 mm short.\n"
            "3. Fit it, *then* glue.\n\n"
            "> Never glue first.\n\n"
            "---\n\n"
            "See also [frames](https://example.org/frames?id=7&lang=en#top)."
        ),
        (
            "* Cycling: cheap, quick in town, wet in rain.\n"
            "* Bus: dry, slow.\n"
            "* Car: ~~cheap~~ dear, and you still have to park it.\n\n"
            "So: **bike**, unless it's below -10 °C."
        ),
    ),
)

SCRIPTS = Topic(
    "mixed scripts",
    r"(?i)\b(translate|translation|language|say|word|spell|greeting|alphabet)\b|[\u0400-\u04ff\u0600-\u06ff\u3040-\u30ff\uac00-\ud7af]",
    (
        "In Russian it is «спасибо», in Greek «ευχαριστώ».",
        "日本語では「ありがとうございます」と言います。",
        "Arabic runs right to left: شكرا جزيلا.",
        "Diacritics matter: Å is not A, and ñ is not n.",
        "한국어로는 “감사합니다”.",
    ),
    (
        (
            "Русский: спасибо большое\n"
            "Ελληνικά: ευχαριστώ πολύ\n"
            "العربية: شكرا جزيلا\n"
            "हिन्दी: बहुत धन्यवाद\n"
            "ไทย: ขอบคุณมาก\n"
            "日本語：どうもありがとう\n"
            "한국어: 정말 감사합니다"
        ),
        "Oi! Em Portugal diz-se também «Olá», e ao telefone «Está lá?».",
        "Œuvre, naïve, Ångström, İstanbul, Đà Nẵng, Łódź, þorn: each of these words has a letter that ASCII lacks.",
        "The sign 𓂀 is a hieroglyph (U+13080), 𝔄 is a Fraktur A, and ⿰ only describes how a character is built.",
        "One line separator \u2028is U+2028, the next line control is U+0085 \u0085and neither ends a line here.",
    ),
)

EMOJI = Topic(
    "emoji",
    r"(?i)\b(emoji|fun|party|birthday|joke|celebrate|thanks|hello|hi)\b",
    (
        "An emoji or two would fit: 🎉 perhaps.",
        "A family emoji is several characters joined, 👩‍👩‍👧‍👦, so counting is tricky.",
        "Not too many, though 🙂.",
    ),
    (
        "🎂 Happy birthday! 🎉🎉🎉 May the cake be large and the candles few 🕯️.",
        "Hi! 👋🏽 How can I help you today?",
        (
            "🏳️‍🌈 is four code points, 👩‍👩‍👧‍👦 is seven, and 🇨🇭 is two: C and H. Your editor may show"
            " each as one character."
        ),
        "Why did the token cross the border? To get to the other `id`. 🐔🥁",
    ),
)

LAYOUT = Topic(
    "layout",
    r"(?i)\b(ascii|draw|diagram|tree|layout|align|columns|whitespace)\b",
    (
        "The columns have to line up, so I count blanks:          ten.",
        "Let me sketch it.\n\n\n\n    a\n   / \\\n  b   c",
        "A fixed-width font is safe to assume.",
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
            "coffee                                    3.20\n"
            "newspaper                                 2.90\n\n\n\n\n\n\n\n"
            "total                                     6.10   \n"
        ),
        (
            "project/\n"
            "├── data/\n"
            "│   ├── raw.csv\n"
            "│   └── clean.csv\n"
            "├── src/\n"
            "│   └── main.py\n"
            "└── README.md\t\t# start here"
        ),
    ),
)

TOPICS = (CODE, MATHEMATICS, CHINESE, PROSE, MARKDOWN, SCRIPTS, EMOJI, LAYOUT)
