"""What the scripted model says: texts in Chinese, in prose, in mixed scripts and with emoji, beside the technical ones.

They hold what is hard to get back from text: Han characters and digits at the front, characters of several tokens,
line separators that are no newlines.
"""

from kimi_helpers.simulator.scripted_technical import TECHNICAL_TOPICS
from kimi_helpers.simulator.scripted_topics import Topic

CHINESE = Topic(
    "Chinese",
    r"[\u4e00-\u9fff]",
    (
        "这个问题可以分成⟦数⟧步来看。",
        "首先确认用户说的“周末”是指星期六和星期日。",
        "答案不必太长，三四句话就够了。",
        "注意全角标点：逗号是“，”，句号是“。”。",
        "如果按⟦year⟧年的数据，增长率大约是⟦decimal⟧%。",
        "最后再检查一遍有没有错别字。",
        "⟦人⟧和⟦人⟧都在⟦城⟧，这一点可以不提。",
        "用户写的是“⟦成语⟧”，先解释字面，再说用法。",
    ),
    (
        "中国的二十四节气始于立春，终于大寒。古人用它安排农事：惊蛰前后开始春耕，芒种时收麦插秧，霜降以后田里就清闲了。",
        "第一步：把米淘洗⟦数⟧遍，加一比一点二的水。\n第二步：大火煮开，转小火焖⟦n⟧分钟。\n第三步：关火后再焖10分钟，不要揭盖。",
        "《静夜思》是李白的五言绝句，全诗只有二十个字，写的是月光、霜和思乡。\n\n要点：\n- 用词浅白\n- 意境深远",
        "挑衅与辅助是两个完全不同的词：前者指故意惹人生气，后者指从旁帮助。",
        "⟦digit⟧个苹果加⟦digit⟧个梨，一共⟦n⟧个水果。",
        '用Python的`len("你好")`得到2，因为它数的是字符；编码成UTF-8以后是6个字节。',
        "“⟦成语:a⟧”出自古书，意思是多此一举或者固执不变，看语境而定。例句：他给⟦物⟧画上花纹，真是⟦成语:a⟧。",
        "⟦人⟧您好：\n\n　　会议改到⟦date⟧下午⟦digit⟧点，地点在⟦城⟧。请带上⟦物⟧和⟦n⟧元。\n\n　　　　　　　　⟦人⟧ 敬上",
        "⟦城⟧到⟦城⟧约⟦n⟧公里，乘高铁⟦decimal⟧小时，票价¥⟦n⟧。",
    ),
)

PROSE = Topic(
    "prose",
    r"(?i)\b(story|explain|why|who|describe|history|poem|letter|write|tell)\b",
    (
        "They probably know the basics, so I can skip the definition.",
        "Two paragraphs should do; a list would look stiff.",
        "I shouldn't claim a date I am not sure of: ⟦year⟧ or ⟦year⟧?",
        "What's the simplest example? A ⟦thing⟧ under a glass.",
        "It'd be wrong to call this a law; it is a rule of thumb.",
        "Keep the tone friendly, don't lecture.",
        "⟦name⟧ of ⟦city⟧ might be the ⟦adjective⟧ one in the story.",
    ),
    (
        (
            "The ⟦thing⟧ in the harbour office went out at ten. ⟦name:a⟧ counted the boats by their sounds"
            " instead: the long creak was the ferry, the quick tapping was ⟦name⟧'s skiff. ⟦name:a⟧ had"
            " never told anyone, and nobody'd asked."
        ),
        (
            "Bread goes stale even in a closed box because its starch slowly crystallises and lets go of"
            " water. Warmth undoes that for a while, which is why yesterday's roll tastes fresh from the"
            " oven and hard again an hour later."
        ),
        (
            "Dear neighbours,\n\n"
            "the stairs will be painted on ⟦date⟧. Please use the back door until ⟦digit⟧ o'clock, and"
            " keep children and pets away from the ⟦adjective⟧ railings.\n\n"
            "Yours,\n"
            "⟦name⟧\n"
        ),
        (
            "It's the tilt of the Earth's axis, not its distance from the Sun. In January we're about 5"
            " million km closer than in July, and yet it's winter in the north: the light falls in at a"
            " low angle and the days are short."
        ),
        "In ⟦year⟧ a ⟦adjective⟧ ⟦thing⟧ of ⟦material⟧ was worth ⟦thousands⟧ marks in ⟦city⟧; by ⟦year⟧ it wasn't.",
        "“Take the ⟦thing:a⟧,” said ⟦name:a⟧.\n“Which ⟦thing:a⟧?”\n“The ⟦adjective⟧ one — behind the ⟦material⟧ door.”",
        "The ⟦adjective⟧ ⟦thing⟧ sleeps,\na ⟦thing⟧ of ⟦material⟧ keeps\nits ⟦n⟧ watch by night…",
    ),
)

SCRIPTS = Topic(
    "mixed scripts",
    r"(?i)\b(translate|translation|language|say|word|spell|greeting|alphabet)\b|[\u0400-\u04ff\u0600-\u06ff\u3040-\u30ff\uac00-\ud7af]",
    (
        "In Russian it is «⟦русское⟧», in Greek «ευχαριστώ».",
        "日本語では「⟦日本⟧」と言います。",
        "Arabic runs right to left: شكرا جزيلا.",
        "Diacritics matter: Å is not A, and ñ is not n.",
        "한국어로는 “⟦한국⟧”.",
        "⟦world⟧ and ⟦world⟧ share no letter.",
    ),
    (
        (
            "Русский: спасибо большое, ⟦русское⟧\n"
            "Ελληνικά: ευχαριστώ πολύ\n"
            "العربية: شكرا جزيلا\n"
            "हिन्दी: बहुत धन्यवाद\n"
            "ไทย: ขอบคุณมาก\n"
            "日本語：どうもありがとう、⟦日本⟧\n"
            "한국어: 정말 감사합니다, ⟦한국⟧"
        ),
        "Oi! Em Portugal diz-se também «Olá», e ao telefone «Está lá?».",
        "Œuvre, naïve, Ångström, İstanbul, Đà Nẵng, ⟦world⟧: each of these words has a letter that ASCII lacks.",
        "The sign 𓂀 is a hieroglyph (U+13080), 𝔄 is a Fraktur A, and ⿰ only describes how a character is built.",
        "One line separator \u2028is U+2028, the next line control is U+0085 \u0085and neither ends a line here.",
        "⟦русское⟧ = ⟦日本⟧ = ⟦한국⟧ = ⟦物⟧? No: only ⟦n⟧ of these ⟦digit⟧ words mean the same.",
        "Combining marks: e\u0301 is two code points, é one; \u200bzero width, \u00a0no break, \ufeffBOM.",
    ),
)

EMOJI = Topic(
    "emoji",
    r"(?i)\b(emoji|fun|party|birthday|joke|celebrate|thanks|hello|hi)\b",
    (
        "An emoji or two would fit: ⟦emoji⟧ perhaps.",
        "A family emoji is several characters joined, 👩‍👩‍👧‍👦, so counting is tricky.",
        "Not too many, though ⟦emoji⟧.",
        "⟦emoji⟧⟦emoji⟧ may be more than ⟦digit⟧ tokens.",
    ),
    (
        "🎂 Happy birthday, ⟦name⟧! 🎉🎉🎉 May the cake be large and the candles few 🕯️.",
        "Hi! 👋🏽 How can I help you today?",
        (
            "🏳️‍🌈 is four code points, 👩‍👩‍👧‍👦 is seven, and 🇨🇭 is two: C and H. Your editor may show"
            " each as one character."
        ),
        "Why did the token cross the border? To get to the other `id`. 🐔🥁",
        "⟦emoji⟧ ⟦name⟧ rides to ⟦city⟧ ⟦emoji⟧\n⟦emoji⟧ ⟦n⟧ km ⟦emoji⟧",
        "⟦digit⟧️⃣ ⟦thing⟧ ⟦emoji⟧\n⟦digit⟧️⃣ ⟦thing⟧ ⟦emoji⟧⟦emoji⟧⟦emoji⟧",
    ),
)

TOPICS = (*TECHNICAL_TOPICS, CHINESE, PROSE, SCRIPTS, EMOJI)
