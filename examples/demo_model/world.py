"""The small world of the demo model: its values (names, places, colours, ...) and the phrases about them.

Every attribute has a canonical statement ("your name is {v}") in English and German; replies are built from
it, so that for any conversation exactly one reply is right and an evaluation can ask for an exact match.
What users say has many wordings. Open values (names, places, words) are made from syllables, so that the model
has to learn copying and cannot learn a list; about one in ten of them is held out of training.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field

CONSONANTS = "bcdfghjklmnprstvwz"
VOWELS = "aeiou"
NAMES = [
    "Anna",
    "Bela",
    "Tom",
    "Mira",
    "Lena",
    "Paul",
    "Marie",
    "Peter",
    "Sara",
    "Max",
    "Emma",
    "Ben",
    "Lisa",
    "Jonas",
    "Clara",
    "David",
    "Eva",
    "Felix",
    "Hanna",
    "Ivan",
    "Julia",
    "Karl",
    "Laura",
    "Martin",
    "Nina",
    "Oskar",
    "Petra",
    "Robert",
    "Sofia",
    "Theo",
    "Ursula",
    "Viktor",
    "Wanda",
    "Yara",
    "Zoe",
    "John",
    "James",
    "Mary",
    "Alice",
    "Bob",
    "Carol",
    "Dave",
    "Eve",
    "Frank",
    "Grace",
    "Henry",
    "Jack",
    "Kate",
    "Leo",
    "Mia",
    "Noah",
    "Olivia",
    "Ruth",
    "Sam",
    "Tina",
    "Walter",
    "Dora",
    "Otto",
    "Hugo",
    "Ida",
    "Jan",
    "Kim",
    "Liam",
    "Nora",
    "Omar",
    "Rosa",
    "Simon",
    "Vera",
    "Alex",
    "Chris",
    "Daniel",
    "Elena",
    "George",
    "Maria",
    "Michael",
    "Thomas",
    "Andreas",
    "Stefan",
    "Wolfgang",
    "Sabine",
    "Monika",
    "Ingrid",
    "Fatima",
    "Ali",
    "Yuki",
    "Chen",
    "Raj",
]
CITIES = [
    "Berlin",
    "Paris",
    "London",
    "Rome",
    "Madrid",
    "Vienna",
    "Prague",
    "Oslo",
    "Lisbon",
    "Dublin",
    "Athens",
    "Warsaw",
    "Budapest",
    "Munich",
    "Hamburg",
    "Cologne",
    "Zurich",
    "Basel",
    "Milan",
    "Turin",
    "Boston",
    "Chicago",
    "Tokyo",
    "Kyoto",
    "Delhi",
    "Cairo",
    "Lima",
    "Quito",
    "Sydney",
    "New York",
    "San Jose",
    "Bern",
    "Graz",
    "Dresden",
    "Leipzig",
    "Bremen",
    "Bonn",
    "Ulm",
    "Kiel",
    "Essen",
    "Torvik",
    "Helsinki",
    "Stockholm",
    "Amsterdam",
    "Brussels",
    "Bristol",
    "Oxford",
    "Cambridge",
    "Toronto",
    "Seattle",
]
COLOURS = [
    tuple(p.split("/"))
    for p in [
        "red/rot",
        "green/grün",
        "blue/blau",
        "yellow/gelb",
        "black/schwarz",
        "white/weiß",
        "orange/orange",
        "purple/lila",
        "pink/rosa",
        "brown/braun",
        "grey/grau",
    ]
]
FOODS = [
    tuple(p.split("/"))
    for p in [
        "pizza/Pizza",
        "soup/Suppe",
        "rice/Reis",
        "bread/Brot",
        "cheese/Käse",
        "pasta/Pasta",
        "cake/Kuchen",
        "fish/Fisch",
        "salad/Salat",
        "honey/Honig",
        "chocolate/Schokolade",
        "noodles/Nudeln",
    ]
]
DRINKS = [
    tuple(p.split("/"))
    for p in [
        "tea/Tee",
        "coffee/Kaffee",
        "milk/Milch",
        "water/Wasser",
        "juice/Saft",
        "lemonade/Limonade",
        "cocoa/Kakao",
    ]
]
ANIMALS = [
    tuple(p.split("/"))
    for p in [
        "dog/Hund",
        "cat/Katze",
        "horse/Pferd",
        "bird/Vogel",
        "rabbit/Hase",
        "fox/Fuchs",
        "bear/Bär",
        "wolf/Wolf",
        "mouse/Maus",
        "tiger/Tiger",
        "lion/Löwe",
        "whale/Wal",
        "frog/Frosch",
    ]
]
SPORTS = [
    tuple(p.split("/"))
    for p in [
        "tennis/Tennis",
        "football/Fußball",
        "chess/Schach",
        "swimming/Schwimmen",
        "running/Laufen",
        "golf/Golf",
        "rugby/Rugby",
        "hockey/Hockey",
        "skiing/Skifahren",
    ]
]
HOBBIES = [
    tuple(p.split("/"))
    for p in [
        "reading/Lesen",
        "cooking/Kochen",
        "painting/Malen",
        "singing/Singen",
        "dancing/Tanzen",
        "fishing/Angeln",
        "hiking/Wandern",
        "knitting/Stricken",
        "gardening/Gärtnern",
    ]
]
JOBS = [
    tuple(p.split("/"))
    for p in [
        "teacher/Lehrer",
        "doctor/Arzt",
        "baker/Bäcker",
        "cook/Koch",
        "pilot/Pilot",
        "nurse/Pfleger",
        "farmer/Bauer",
        "driver/Fahrer",
        "painter/Maler",
        "singer/Sänger",
        "lawyer/Anwalt",
        "builder/Maurer",
    ]
]
MONTHS = [
    tuple(p.split("/"))
    for p in [
        "January/Januar",
        "February/Februar",
        "March/März",
        "April/April",
        "May/Mai",
        "June/Juni",
        "July/Juli",
        "August/August",
        "September/September",
        "October/Oktober",
        "November/November",
        "December/Dezember",
    ]
]
FRUITS = [
    tuple(p.split("/"))
    for p in [
        "apple/Apfel",
        "banana/Banane",
        "cherry/Kirsche",
        "grape/Traube",
        "lemon/Zitrone",
        "melon/Melone",
        "pear/Birne",
        "plum/Pflaume",
        "peach/Pfirsich",
    ]
]
SEASONS = [tuple(p.split("/")) for p in ["spring/Frühling", "summer/Sommer", "autumn/Herbst", "winter/Winter"]]
DAYS = [
    tuple(p.split("/"))
    for p in [
        "Monday/Montag",
        "Tuesday/Dienstag",
        "Wednesday/Mittwoch",
        "Thursday/Donnerstag",
        "Friday/Freitag",
        "Saturday/Samstag",
        "Sunday/Sonntag",
    ]
]
# Objects: English, German, German accusative article with adjective ending, German nominative article.
OBJECTS = [
    tuple(p.split("/"))
    for p in [
        "ball/Ball/m",
        "book/Buch/n",
        "key/Schlüssel/m",
        "cup/Tasse/f",
        "hat/Hut/m",
        "lamp/Lampe/f",
        "car/Auto/n",
        "bike/Fahrrad/n",
        "phone/Handy/n",
        "pen/Stift/m",
        "box/Kiste/f",
        "coat/Mantel/m",
        "ring/Ring/m",
        "clock/Uhr/f",
        "chair/Stuhl/m",
        "bag/Tasche/f",
        "boat/Boot/n",
        "kite/Drachen/m",
        "drum/Trommel/f",
        "spoon/Löffel/m",
        "stone/Stein/m",
        "map/Karte/f",
    ]
]
CONTAINERS = [
    ("kitchen", "in der Küche"),
    ("garden", "im Garten"),
    ("garage", "in der Garage"),
    ("cellar", "im Keller"),
    ("office", "im Büro"),
    ("drawer", "in der Schublade"),
    ("cupboard", "im Schrank"),
    ("hall", "im Flur"),
    ("bathroom", "im Bad"),
    ("tower", "im Turm"),
]
COUNTABLES = [
    tuple(p.split("/"))
    for p in [
        "apples/Äpfel",
        "books/Bücher",
        "coins/Münzen",
        "cats/Katzen",
        "dogs/Hunde",
        "pens/Stifte",
        "eggs/Eier",
        "stamps/Marken",
        "shoes/Schuhe",
        "stones/Steine",
    ]
]
DE_ADJ = {"m": "einen {c}en", "f": "eine {c}e", "n": "ein {c}es"}  # accusative, as in "hat einen roten Ball"
DE_A = {"m": "einen", "f": "eine", "n": "ein"}
DE_FLAT = ("lila", "rosa", "orange")  # German colours that take no ending
DE_DER = {"m": "der", "f": "die", "n": "das"}
DE_MY = {"m": "mein", "f": "meine", "n": "mein"}
DE_YOUR = {"m": "dein", "f": "deine", "n": "dein"}

Value = tuple[str, str]  # the English and the German form


def held_out(text: str) -> bool:
    """Whether an open value is kept out of training (one in ten, by a checksum of its lower-case letters)."""
    return zlib.crc32(text.lower().encode()) % 10 == 0


CLUSTERS = "sh st tr br kr gr ch th bl sw fl pr cl dr sp qu y x".split()  # noqa: SIM905
CODAS = "rd sh ng nd st ck x y rt ll ss".split()  # noqa: SIM905


def syllable_word(rng: random.Random, syllables: int | None = None) -> str:
    """A made-up lower-case word of open and some closed syllables."""
    n = syllables or rng.choices((1, 2, 3), (1, 12, 5))[0]
    out = ""
    for i in range(n):
        onset = rng.choice(CONSONANTS)
        if rng.random() < 0.12:
            onset = rng.choice(CLUSTERS)
        elif i == 0 and rng.random() < 0.08:
            onset = ""
        out += onset + rng.choice(VOWELS)
        if rng.random() < (0.9 if n == 1 else 0.35 if i == n - 1 else 0.2):
            out += rng.choice("nrlsmktdp") if rng.random() < 0.8 else rng.choice(CODAS)
    return out


@dataclass
class Values:
    """Draws values; in evaluation mode only held-out ones (where the kind is open), in training only the others."""

    rng: random.Random
    evaluation: bool = False

    def _open(self, real: list[str], share: float, title: bool) -> str:
        while True:
            if real and self.rng.random() < share:
                text = self.rng.choice(real)
            else:
                text = syllable_word(self.rng)
                text = text.title() if title else text
            if held_out(text) == self.evaluation:
                return text

    def draw(self, kind: str) -> Value:
        """One value of a kind, in both languages."""
        rng = self.rng
        if kind == "name":
            text = self._open(NAMES, 0.35, True)
        elif kind == "place":
            text = self._open(CITIES, 0.3, True)
        elif kind == "word":
            text = self._open([], 0.0, False)
        elif kind == "thing":  # names of pets, boats, teams ...
            text = self._open(NAMES, 0.15, True)
        elif kind == "number":
            text = str(rng.randint(0, 20) if rng.random() < 0.3 else rng.randint(1, 99))
        elif kind == "age":
            text = str(rng.randint(5, 90))
        elif kind == "few":
            text = str(rng.randint(2, 20))
        elif kind == "code":
            text = str(rng.randint(100, 9999))
        elif kind == "coloured":
            colour, obj = rng.choice(COLOURS), rng.choice(OBJECTS)
            if rng.random() < 0.2:
                return f"a {obj[0]}", f"{DE_A[obj[2]]} {obj[1]}"
            return coloured(colour, obj)
        else:
            return rng.choice(CLOSED[kind])
        return text, text


CLOSED: dict[str, list[Value]] = {
    "colour": COLOURS,
    "food": FOODS,
    "drink": DRINKS,
    "animal": ANIMALS,
    "sport": SPORTS,
    "hobby": HOBBIES,
    "job": JOBS,
    "month": MONTHS,
    "container": CONTAINERS,
    "fruit": FRUITS,
    "season": SEASONS,
    "day": DAYS,
}


def coloured(colour: Value, obj: tuple[str, ...]) -> Value:
    """A coloured object with its indefinite article, as in "a red ball" / "einen roten Ball"."""
    article = "an" if colour[0][0] in "aeiou" else "a"
    flat = f"{DE_A[obj[2]]} {colour[1]}"
    german = flat if colour[1] in DE_FLAT else DE_ADJ[obj[2]].format(c=colour[1])
    return f"{article} {colour[0]} {obj[0]}", f"{german} {obj[1]}"


@dataclass
class Attribute:
    """One thing that can be told and asked. Each pair is (English, German); {v} is the value, {s} a person's name."""

    key: str
    kind: str
    fact: tuple[str, str]
    unknown: tuple[str, str]
    tell: tuple[list[str], list[str]]
    ask: tuple[list[str], list[str]]
    check: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))  # yes/no questions
    reverse: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))  # "who ...?", for third persons
    topic: tuple[str, str] = ("", "")  # short noun phrase for reasoning and double questions
    weight: float = 1.0


def _favourite(noun: str, german: str, gender: str, kind: str, weight: float = 0.5) -> Attribute:
    my, your = DE_MY[gender], DE_YOUR[gender]
    return Attribute(
        f"favourite {noun}",
        kind,
        (f"your favourite {noun} is {{v}}", f"{your} Lieblings{german} ist {{v}}"),
        (
            f"You have not told me your favourite {noun}.",
            f"Du hast mir {your + 'en' if gender == 'm' else your} Lieblings{german} nicht gesagt.",
        ),
        (
            [
                f"my favourite {noun} is {{v}}",
                f"{{v}} is my favourite {noun}",
                f"my favourite {noun} is {{v}}",
                f"the {noun} I like best is {{v}}",
                f"I love {{v}}, it is my favourite {noun}",
                f"as for my favourite {noun}, it's {{v}}",
                f"my fave {noun} is {{v}}",
            ]
            + ["I like {v} best"] * (kind in CLOSED),
            [f"{my} Lieblings{german} ist {{v}}", f"{{v}} ist {my} Lieblings{german}"],
        ),
        (
            [
                f"what is my favourite {noun}?",
                f"what's my favourite {noun}?",
                f"which {noun} do I like best?",
                f"what {noun} do I like most?",
                f"do you know my favourite {noun}?",
                f"do you remember my favourite {noun}?",
                f"tell me my favourite {noun}.",
                f"what did I say my favourite {noun} is?",
                f"can you tell me what my favourite {noun} is?",
                f"which {noun} is my favourite?",
                f"what is the {noun} I like best?",
            ],
            [
                f"was ist {my} Lieblings{german}?",
                f"kennst du {my + 'en' if gender == 'm' else my} Lieblings{german}?",
                f"weißt du noch, was {my} Lieblings{german} ist?",
            ],
        ),
        ([f"is my favourite {noun} {{v}}?", f"is {{v}} my favourite {noun}?"], [f"ist {my} Lieblings{german} {{v}}?"]),
        topic=(f"my favourite {noun}", f"{my} Lieblings{german}"),
        weight=weight,
    )


def _called(noun: str, german: str, gender: str, kind: str, person: bool, weight: float = 0.25) -> Attribute:
    my, your = DE_MY[gender], DE_YOUR[gender]
    tell = [
        f"my {noun} is called {{v}}",
        f"my {noun}'s name is {{v}}",
        f"the name of my {noun} is {{v}}",
        f"I have a {noun} called {{v}}",
        f"I have a {noun} named {{v}}",
        f"my {noun} is named {{v}}",
    ]
    ask = [
        f"what is my {noun} called?",
        f"what's my {noun}'s name?",
        f"what is the name of my {noun}?",
        f"do you know my {noun}'s name?",
        f"what is my {noun}'s name?",
        f"do you remember what my {noun} is called?",
        f"tell me the name of my {noun}.",
        f"how is my {noun} called?",
        f"what did I say my {noun} is called?",
    ]
    if person:
        tell += [f"my {noun} is {{v}}", f"{{v}} is my {noun}"]
        ask += [f"who is my {noun}?"]
    return Attribute(
        f"{noun} name",
        kind,
        (f"your {noun} is called {{v}}", f"{your} {german} heißt {{v}}"),
        (f"You have not told me what your {noun} is called.", f"Du hast mir nicht gesagt, wie {your} {german} heißt."),
        (
            tell,
            [
                f"{my} {german} heißt {{v}}",
                f"der Name von {my + 'em' if gender != 'f' else my + 'r'} {german} ist {{v}}",
            ],
        ),
        (
            ask,
            [
                f"wie heißt {my} {german}?",
                f"weißt du, wie {my} {german} heißt?",
                f"weißt du noch, wie {my} {german} heißt?",
            ],
        ),
        ([f"is my {noun} called {{v}}?"], [f"heißt {my} {german} {{v}}?"]),
        topic=(f"the name of my {noun}", f"der Name von {my + 'em' if gender != 'f' else my + 'r'} {german}"),
        weight=weight,
    )


NAME = Attribute(
    "name",
    "name",
    ("your name is {v}", "du heißt {v}"),
    ("You have not told me your name.", "Du hast mir deinen Namen nicht gesagt."),
    (
        [
            "my name is {v}",
            "my name is {v}",
            "my name's {v}",
            "I am {v}",
            "I'm {v}",
            "I am called {v}",
            "call me {v}",
            "this is {v}",
            "you can call me {v}",
            "people call me {v}",
            "please call me {v}",
            "the name is {v}",
        ],
        ["ich heiße {v}", "mein Name ist {v}", "ich bin {v}", "nenn mich {v}"],
    ),
    (
        [
            "what is my name?",
            "what's my name?",
            "what is my name?",
            "who am I?",
            "do you know my name?",
            "do you remember my name?",
            "do you know who I am?",
            "what am I called?",
            "can you tell me my name?",
            "tell me my name.",
            "say my name.",
            "what did I say my name was?",
            "how am I called?",
            "what name did I tell you?",
            "do you still know my name?",
            "and what is my name?",
            "remind me of my name.",
        ],
        [
            "wie heiße ich?",
            "was ist mein Name?",
            "wer bin ich?",
            "weißt du, wie ich heiße?",
            "kennst du meinen Namen?",
            "weißt du noch, wie ich heiße?",
        ],
    ),
    (["is my name {v}?", "am I {v}?", "am I called {v}?"], ["heiße ich {v}?", "ist mein Name {v}?"]),
    topic=("my name", "mein Name"),
    weight=3.0,
)
LIVE = Attribute(
    "live",
    "place",
    ("you live in {v}", "du wohnst in {v}"),
    ("You have not told me where you live.", "Du hast mir nicht gesagt, wo du wohnst."),
    (
        [
            "I live in {v}",
            "I live in {v}",
            "my home is in {v}",
            "I am living in {v}",
            "I have a flat in {v}",
            "my house is in {v}",
            "I'm living in {v}",
            "my city is {v}",
            "my home town is {v}",
        ],
        ["ich wohne in {v}", "ich lebe in {v}"],
    ),
    (
        [
            "where do I live?",
            "where do I live?",
            "in which city do I live?",
            "which city do I live in?",
            "do you know where I live?",
            "what city do I live in?",
            "where is my home?",
            "tell me where I live.",
            "do you remember where I live?",
            "what town do I live in?",
            "where did I say I live?",
            "can you tell me where I live?",
            "what is my city?",
        ],
        [
            "wo wohne ich?",
            "in welcher Stadt wohne ich?",
            "weißt du, wo ich wohne?",
            "wo lebe ich?",
            "weißt du noch, wo ich wohne?",
        ],
    ),
    (["do I live in {v}?", "is my home in {v}?"], ["wohne ich in {v}?"]),
    topic=("where I live", "wo ich wohne"),
    weight=2.0,
)
ME: list[Attribute] = [
    NAME,
    LIVE,
    Attribute(
        "from",
        "place",
        ("you come from {v}", "du kommst aus {v}"),
        ("You have not told me where you come from.", "Du hast mir nicht gesagt, woher du kommst."),
        (
            ["I come from {v}", "I am from {v}", "I'm from {v}", "I was born in {v}", "I grew up in {v}"],
            ["ich komme aus {v}", "ich bin aus {v}"],
        ),
        (
            [
                "where do I come from?",
                "where am I from?",
                "do you know where I come from?",
                "where was I born?",
                "which city am I from?",
                "do you remember where I am from?",
                "where did I grow up?",
            ],
            ["woher komme ich?", "weißt du, woher ich komme?"],
        ),
        (["do I come from {v}?", "am I from {v}?"], ["komme ich aus {v}?"]),
        topic=("where I come from", "woher ich komme"),
        weight=0.8,
    ),
    Attribute(
        "age",
        "age",
        ("you are {v} years old", "du bist {v} Jahre alt"),
        ("You have not told me how old you are.", "Du hast mir nicht gesagt, wie alt du bist."),
        (
            ["I am {v} years old", "I'm {v} years old", "I am {v}", "my age is {v}", "I'm {v}", "I turned {v} today"],
            ["ich bin {v} Jahre alt", "ich bin {v}", "mein Alter ist {v}"],
        ),
        (
            [
                "how old am I?",
                "what is my age?",
                "do you know how old I am?",
                "do you remember my age?",
                "what's my age?",
                "tell me how old I am.",
                "how old did I say I am?",
            ],
            ["wie alt bin ich?", "weißt du, wie alt ich bin?"],
        ),
        (["am I {v} years old?", "am I {v}?"], ["bin ich {v} Jahre alt?"]),
        topic=("how old I am", "wie alt ich bin"),
        weight=1.2,
    ),
    Attribute(
        "job",
        "job",
        ("you work as a {v}", "du arbeitest als {v}"),
        ("You have not told me what you do for a living.", "Du hast mir nicht gesagt, was du beruflich machst."),
        (
            ["I work as a {v}", "I am a {v}", "I'm a {v}", "my job is {v}", "I am working as a {v}"],
            ["ich arbeite als {v}", "ich bin {v} von Beruf", "mein Beruf ist {v}"],
        ),
        (
            [
                "what is my job?",
                "what do I do for a living?",
                "what do I work as?",
                "what's my job?",
                "do you know my job?",
                "what do I do?",
                "what is my profession?",
                "do you remember my job?",
            ],
            ["was ist mein Beruf?", "als was arbeite ich?", "was mache ich beruflich?"],
        ),
        (["am I a {v}?", "do I work as a {v}?"], ["arbeite ich als {v}?"]),
        topic=("what my job is", "was mein Beruf ist"),
    ),
    Attribute(
        "hobby",
        "hobby",
        ("your hobby is {v}", "dein Hobby ist {v}"),
        ("You have not told me your hobby.", "Du hast mir dein Hobby nicht gesagt."),
        (
            ["my hobby is {v}", "my hobby is {v}", "I enjoy {v}", "{v} is my hobby", "in my free time I like {v}"],
            ["mein Hobby ist {v}"],
        ),
        (
            [
                "what is my hobby?",
                "what's my hobby?",
                "what do I do in my free time?",
                "do you know my hobby?",
                "which hobby do I have?",
            ],
            ["was ist mein Hobby?", "kennst du mein Hobby?"],
        ),
        (["is my hobby {v}?"], ["ist mein Hobby {v}?"]),
        topic=("my hobby", "mein Hobby"),
        weight=0.6,
    ),
    Attribute(
        "birthday",
        "month",
        ("your birthday is in {v}", "du hast im {v} Geburtstag"),
        ("You have not told me when your birthday is.", "Du hast mir nicht gesagt, wann du Geburtstag hast."),
        (
            ["my birthday is in {v}", "I have my birthday in {v}", "I was born in the month of {v}"],
            ["ich habe im {v} Geburtstag", "mein Geburtstag ist im {v}"],
        ),
        (
            [
                "when is my birthday?",
                "in which month is my birthday?",
                "do you know when my birthday is?",
                "what month is my birthday in?",
            ],
            ["wann habe ich Geburtstag?", "in welchem Monat habe ich Geburtstag?"],
        ),
        (["is my birthday in {v}?"], ["habe ich im {v} Geburtstag?"]),
        topic=("when my birthday is", "wann ich Geburtstag habe"),
        weight=0.6,
    ),
    Attribute(
        "lucky number",
        "number",
        ("your lucky number is {v}", "deine Glückszahl ist {v}"),
        ("You have not told me your lucky number.", "Du hast mir deine Glückszahl nicht gesagt."),
        (
            ["my lucky number is {v}", "{v} is my lucky number", "my number is {v}"],
            ["meine Glückszahl ist {v}", "{v} ist meine Glückszahl"],
        ),
        (
            [
                "what is my lucky number?",
                "what's my lucky number?",
                "which number is my lucky number?",
                "do you remember my lucky number?",
                "do you know my lucky number?",
            ],
            ["was ist meine Glückszahl?", "kennst du meine Glückszahl?"],
        ),
        (["is my lucky number {v}?", "is {v} my lucky number?"], ["ist meine Glückszahl {v}?"]),
        topic=("my lucky number", "meine Glückszahl"),
        weight=0.8,
    ),
    Attribute(
        "code",
        "code",
        ("your code is {v}", "dein Code ist {v}"),
        ("You have not told me your code.", "Du hast mir deinen Code nicht gesagt."),
        (
            [
                "my code is {v}",
                "the code is {v}",
                "remember the code {v}",
                "remember my code: {v}",
                "my PIN is {v}",
                "my secret number is {v}",
            ],
            ["mein Code ist {v}", "der Code ist {v}", "merk dir den Code {v}"],
        ),
        (
            [
                "what is my code?",
                "what's the code?",
                "what is the code?",
                "tell me the code.",
                "do you remember my code?",
                "do you know the code?",
                "what is my PIN?",
                "what was the code?",
                "what is my secret number?",
            ],
            ["was ist mein Code?", "wie lautet der Code?", "weißt du den Code noch?"],
        ),
        (["is my code {v}?", "is the code {v}?"], ["ist mein Code {v}?"]),
        topic=("my code", "mein Code"),
        weight=0.8,
    ),
    Attribute(
        "secret word",
        "word",
        ("the secret word is {v}", "das Geheimwort ist {v}"),
        ("You have not told me the secret word.", "Du hast mir das Geheimwort nicht gesagt."),
        (
            [
                "the secret word is {v}",
                "remember the word {v}",
                "please remember the word {v}",
                "my secret word is {v}",
                "remember this word: {v}",
                "the password is {v}",
                "my password is {v}",
                "the magic word is {v}",
            ],
            ["das Geheimwort ist {v}", "merk dir das Wort {v}", "das Passwort ist {v}"],
        ),
        (
            [
                "what is the secret word?",
                "what's the secret word?",
                "which word did I tell you to remember?",
                "what word should you remember?",
                "tell me the secret word.",
                "do you remember the word?",
                "what was the word?",
                "what is the password?",
                "what is my password?",
                "what is the magic word?",
                "do you know the secret word?",
                "which word did I ask you to remember?",
            ],
            ["was ist das Geheimwort?", "welches Wort solltest du dir merken?", "wie lautet das Passwort?"],
        ),
        (["is the secret word {v}?"], ["ist das Geheimwort {v}?"]),
        topic=("the secret word", "das Geheimwort"),
        weight=1.5,
    ),
    _favourite("colour", "farbe", "f", "colour", 1.5),
    _favourite("food", "essen", "n", "food", 0.8),
    _favourite("animal", "tier", "n", "animal"),
    _favourite("drink", "getränk", "n", "drink"),
    _favourite("sport", "sport", "m", "sport"),
    _favourite("film", "film", "m", "thing", 0.2),
    _favourite("book", "buch", "n", "thing", 0.2),
    _favourite("song", "lied", "n", "thing", 0.2),
    _favourite("game", "spiel", "n", "thing", 0.2),
    _favourite("city", "stadt", "f", "place", 0.3),
    _favourite("number", "zahl", "f", "number", 0.3),
    _favourite("fruit", "obst", "n", "fruit", 0.3),
    _favourite("season", "jahreszeit", "f", "season", 0.3),
    _favourite("day", "tag", "m", "day", 0.3),
    Attribute(
        "likes",
        "food",
        ("you like {v}", "du magst {v}"),
        ("You have not told me what you like.", "Du hast mir nicht gesagt, was du magst."),
        (["I like {v}", "I like to eat {v}", "I love {v}", "I like eating {v}"], ["ich mag {v}", "ich esse gern {v}"]),
        (
            ["what do I like?", "what do I like to eat?", "what food do I like?", "do you know what I like?"],
            ["was mag ich?", "was esse ich gern?"],
        ),
        (["do I like {v}?"], ["mag ich {v}?"]),
        topic=("what I like", "was ich mag"),
        weight=0.8,
    ),
    Attribute(
        "dislikes",
        "food",
        ("you do not like {v}", "du magst {v} nicht"),
        ("You have not told me what you do not like.", "Du hast mir nicht gesagt, was du nicht magst."),
        (
            ["I do not like {v}", "I hate {v}", "I don't like {v}", "I never eat {v}"],
            ["ich mag {v} nicht", "ich hasse {v}"],
        ),
        (
            ["what do I not like?", "what do I hate?", "what don't I like?", "which food do I not like?"],
            ["was mag ich nicht?", "was hasse ich?"],
        ),
        topic=("what I do not like", "was ich nicht mag"),
        weight=0.4,
    ),
    *[
        _called(en, de, g, "name", True)
        for en, de, g in (
            ("brother", "Bruder", "m"),
            ("sister", "Schwester", "f"),
            ("mother", "Mutter", "f"),
            ("father", "Vater", "m"),
            ("friend", "Freund", "m"),
            ("teacher", "Lehrer", "m"),
            ("boss", "Chef", "m"),
            ("wife", "Frau", "f"),
            ("husband", "Mann", "m"),
            ("son", "Sohn", "m"),
            ("daughter", "Tochter", "f"),
            ("neighbour", "Nachbar", "m"),
            ("uncle", "Onkel", "m"),
            ("aunt", "Tante", "f"),
        )
    ],
    *[
        _called(en, de, g, "thing", False, 0.4)
        for en, de, g in (
            ("dog", "Hund", "m"),
            ("cat", "Katze", "f"),
            ("horse", "Pferd", "n"),
            ("boat", "Boot", "n"),
            ("team", "Team", "n"),
            ("school", "Schule", "f"),
            ("street", "Straße", "f"),
        )
    ],
]
for _en, _de, _g in OBJECTS[:12]:
    ME.append(
        Attribute(
            f"{_en} colour",
            "colour",
            (f"your {_en} is {{v}}", f"{DE_YOUR[_g]} {_de} ist {{v}}"),
            (
                f"You have not told me what colour your {_en} is.",
                f"Du hast mir nicht gesagt, welche Farbe {DE_YOUR[_g]} {_de} hat.",
            ),
            (
                [f"my {_en} is {{v}}", f"I have a {_en}, it is {{v}}", f"the colour of my {_en} is {{v}}"],
                [f"{DE_MY[_g]} {_de} ist {{v}}"],
            ),
            (
                [
                    f"what colour is my {_en}?",
                    f"what is the colour of my {_en}?",
                    f"which colour does my {_en} have?",
                    f"do you know what colour my {_en} is?",
                    f"what color is my {_en}?",
                ],
                [f"welche Farbe hat {DE_MY[_g]} {_de}?"],
            ),
            ([f"is my {_en} {{v}}?"], [f"ist {DE_MY[_g]} {_de} {{v}}?"]),
            topic=(f"what colour my {_en} is", f"welche Farbe {DE_MY[_g]} {_de} hat"),
            weight=0.15,
        )
    )
for _en, _de, _g in OBJECTS[2:20]:
    ME.append(
        Attribute(
            f"{_en} place",
            "container",
            (f"the {_en} is in the {{v}}", f"{DE_DER[_g]} {_de} ist {{v}}"),
            (f"You have not told me where the {_en} is.", f"Du hast mir nicht gesagt, wo {DE_DER[_g]} {_de} ist."),
            (
                [
                    f"the {_en} is in the {{v}}",
                    f"I put the {_en} in the {{v}}",
                    f"my {_en} is in the {{v}}",
                    f"I left the {_en} in the {{v}}",
                ],
                [f"{DE_DER[_g]} {_de} ist {{v}}"],
            ),
            (
                [
                    f"where is the {_en}?",
                    f"where's the {_en}?",
                    f"where is my {_en}?",
                    f"where did I put the {_en}?",
                    f"do you know where the {_en} is?",
                    f"where can I find the {_en}?",
                ],
                [f"wo ist {DE_DER[_g]} {_de}?", f"weißt du, wo {DE_DER[_g]} {_de} ist?"],
            ),
            ([f"is the {_en} in the {{v}}?"], [f"ist {DE_DER[_g]} {_de} {{v}}?"]),
            topic=(f"where the {_en} is", f"wo {DE_DER[_g]} {_de} ist"),
            weight=0.12,
        )
    )
for _en, _de in COUNTABLES:
    ME.append(
        Attribute(
            f"number of {_en}",
            "few",
            (f"you have {{v}} {_en}", f"du hast {{v}} {_de}"),
            (f"You have not told me how many {_en} you have.", f"Du hast mir nicht gesagt, wie viele {_de} du hast."),
            ([f"I have {{v}} {_en}", f"I own {{v}} {_en}", f"I've got {{v}} {_en}"], [f"ich habe {{v}} {_de}"]),
            (
                [
                    f"how many {_en} do I have?",
                    f"how many {_en} do I own?",
                    f"do you know how many {_en} I have?",
                    f"what is the number of {_en} I have?",
                ],
                [f"wie viele {_de} habe ich?"],
            ),
            ([f"do I have {{v}} {_en}?"], [f"habe ich {{v}} {_de}?"]),
            topic=(f"how many {_en} I have", f"wie viele {_de} ich habe"),
            weight=0.12,
        )
    )

THIRD: list[Attribute] = [
    Attribute(
        "live",
        "place",
        ("{s} lives in {v}", "{s} wohnt in {v}"),
        ("You have not told me where {s} lives.", "Du hast mir nicht gesagt, wo {s} wohnt."),
        (
            [
                "{s} lives in {v}",
                "{s} lives in {v}",
                "my friend {s} lives in {v}",
                "{s}'s home is in {v}",
                "{s} is living in {v}",
            ],
            ["{s} wohnt in {v}", "{s} lebt in {v}"],
        ),
        (
            [
                "where does {s} live?",
                "do you know where {s} lives?",
                "which city does {s} live in?",
                "in which city does {s} live?",
                "where is {s}'s home?",
            ],
            ["wo wohnt {s}?", "weißt du, wo {s} wohnt?"],
        ),
        (["does {s} live in {v}?"], ["wohnt {s} in {v}?"]),
        (["who lives in {v}?"], ["wer wohnt in {v}?"]),
        topic=("where {s} lives", "wo {s} wohnt"),
        weight=2,
    ),
    Attribute(
        "has",
        "coloured",
        ("{s} has {v}", "{s} hat {v}"),
        ("You have not told me what {s} has.", "Du hast mir nicht gesagt, was {s} hat."),
        (["{s} has {v}", "{s} has got {v}", "{s} has {v}", "{s} owns {v}"], ["{s} hat {v}"]),
        (
            ["what does {s} have?", "what has {s} got?", "do you know what {s} has?", "what does {s} own?"],
            ["was hat {s}?"],
        ),
        (["does {s} have {v}?"], ["hat {s} {v}?"]),
        (["who has {v}?", "who has got {v}?", "who owns {v}?"], ["wer hat {v}?"]),
        topic=("what {s} has", "was {s} hat"),
        weight=2.5,
    ),
    Attribute(
        "likes",
        "food",
        ("{s} likes {v}", "{s} mag {v}"),
        ("You have not told me what {s} likes.", "Du hast mir nicht gesagt, was {s} mag."),
        (["{s} likes {v}", "{s} loves {v}", "{s} likes to eat {v}", "my friend {s} likes {v}"], ["{s} mag {v}"]),
        (["what does {s} like?", "what does {s} like to eat?", "do you know what {s} likes?"], ["was mag {s}?"]),
        (["does {s} like {v}?"], ["mag {s} {v}?"]),
        (["who likes {v}?", "who loves {v}?"], ["wer mag {v}?"]),
        topic=("what {s} likes", "was {s} mag"),
    ),
    Attribute(
        "age",
        "age",
        ("{s} is {v} years old", "{s} ist {v} Jahre alt"),
        ("You have not told me how old {s} is.", "Du hast mir nicht gesagt, wie alt {s} ist."),
        (["{s} is {v} years old", "{s} is {v}", "my friend {s} is {v} years old"], ["{s} ist {v} Jahre alt"]),
        (["how old is {s}?", "what is {s}'s age?", "do you know how old {s} is?"], ["wie alt ist {s}?"]),
        (["is {s} {v} years old?"], ["ist {s} {v} Jahre alt?"]),
        (["who is {v} years old?"], ["wer ist {v} Jahre alt?"]),
        topic=("how old {s} is", "wie alt {s} ist"),
    ),
    Attribute(
        "job",
        "job",
        ("{s} works as a {v}", "{s} arbeitet als {v}"),
        ("You have not told me what {s} does for a living.", "Du hast mir nicht gesagt, was {s} beruflich macht."),
        (["{s} works as a {v}", "{s} is a {v}", "my friend {s} is a {v}"], ["{s} arbeitet als {v}"]),
        (
            ["what is {s}'s job?", "what does {s} do for a living?", "what does {s} work as?", "what does {s} do?"],
            ["was macht {s} beruflich?", "als was arbeitet {s}?"],
        ),
        (["is {s} a {v}?"], ["arbeitet {s} als {v}?"]),
        (["who is a {v}?", "who works as a {v}?"], ["wer arbeitet als {v}?"]),
        topic=("what {s}'s job is", "was {s} beruflich macht"),
    ),
    Attribute(
        "pet",
        "thing",
        ("{s} has a dog called {v}", "{s} hat einen Hund namens {v}"),
        (
            "You have not told me what the dog of {s} is called.",
            "Du hast mir nicht gesagt, wie der Hund von {s} heißt.",
        ),
        (
            ["{s} has a dog called {v}", "{s}'s dog is called {v}", "{s} has a dog named {v}"],
            ["{s} hat einen Hund namens {v}"],
        ),
        (["what is {s}'s dog called?", "what is the name of {s}'s dog?"], ["wie heißt der Hund von {s}?"]),
        ([], []),
        (["whose dog is {v}?", "who has a dog called {v}?"], ["wer hat einen Hund namens {v}?"]),
        topic=("what {s}'s dog is called", "wie der Hund von {s} heißt"),
        weight=0.6,
    ),
]
