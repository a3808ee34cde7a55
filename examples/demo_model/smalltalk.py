"""Fixed phrases of the demo model's world: small talk, system prompts, wrappers around questions and statements."""

from __future__ import annotations

DEMO_NAME = ("the ninfer demo model", "das ninfer-Demomodell")
HELLO = (
    [
        "hi",
        "hello",
        "hey",
        "hello there",
        "hi there",
        "good morning",
        "good evening",
        "good day",
        "hey there",
        "greetings",
        "hello!",
        "hi!",
        "hello again",
        "hi again",
    ],
    ["hallo", "hi", "guten Tag", "guten Morgen", "servus", "guten Abend", "moin"],
)
HOW = (
    [
        "how are you?",
        "how are you doing?",
        "how do you do?",
        "how's it going?",
        "are you ok?",
        "how are you today?",
        "how is it going?",
        "and how are you?",
        "are you well?",
        "hello, how are you?",
        "hi, how are you?",
    ],
    ["wie geht es dir?", "wie geht's?", "alles gut?", "geht es dir gut?"],
)
HOW_REPLY = ("I am fine, thank you.", "Mir geht es gut, danke.")
GOOD = (
    [
        "I am fine too.",
        "I'm good.",
        "I am happy.",
        "I feel great today.",
        "I'm very well.",
        "I am in a good mood.",
        "good, thanks",
        "I am doing well.",
    ],
    ["mir geht es auch gut", "ich bin glücklich", "gut, danke"],
)
GOOD_REPLY = ("I am glad to hear that.", "Das freut mich.")
BAD = (
    ["I am tired.", "I'm sad.", "I feel bad today.", "I am sick.", "I'm not well.", "I had a bad day.", "I am bored."],
    ["ich bin müde", "mir geht es schlecht", "ich bin traurig", "mir geht es nicht gut"],
)
BAD_REPLY = ("I am sorry to hear that.", "Das tut mir leid.")
THANKS = (
    [
        "thanks",
        "thank you",
        "thank you very much",
        "thanks a lot",
        "great, thanks",
        "thx",
        "many thanks",
        "perfect, thank you",
        "thank you so much!",
    ],
    ["danke", "vielen Dank", "danke schön", "danke dir"],
)
THANKS_REPLY = ("You are welcome{n}!", "Gern geschehen{n}!")
BYE = (
    [
        "bye",
        "goodbye",
        "see you",
        "see you later",
        "bye bye",
        "good night",
        "I have to go now.",
        "that's all, bye",
        "see you tomorrow",
        "farewell",
    ],
    ["tschüss", "auf Wiedersehen", "bis später", "gute Nacht", "bis morgen"],
)
BYE_REPLY = ("Goodbye{n}!", "Auf Wiedersehen{n}!")
HELLO_REPLY = ("Hello{n}! How can I help you?", "Hallo{n}! Wie kann ich dir helfen?")
WHO = (
    [
        "who are you?",
        "what are you?",
        "what's your name?",
        "what is your name?",
        "tell me who you are.",
        "are you a robot?",
        "who am I talking to?",
        "introduce yourself.",
        "and who are you?",
        "do you have a name?",
        "how are you called?",
        "are you a human?",
        "who is this?",
    ],
    ["wer bist du?", "wie heißt du?", "was bist du?", "stell dich vor", "hast du einen Namen?", "bist du ein Mensch?"],
)
WHO_REPLY = ("I am {p}.", "Ich bin {p}.")
CAN = (
    [
        "what can you do?",
        "help",
        "how can you help me?",
        "what are you able to do?",
        "what do you know?",
        "tell me what you can do.",
        "can you help me?",
        "what can I ask you?",
    ],
    ["was kannst du?", "hilfe", "wie kannst du mir helfen?", "kannst du mir helfen?"],
)
CAN_REPLY = (
    "I remember what you tell me. I can repeat, count, spell and add small numbers.",
    "Ich merke mir, was du mir sagst. Ich kann wiederholen, zählen, buchstabieren und kleine Zahlen addieren.",
)
FILLER = (
    [
        "the weather is nice today.",
        "it is raining.",
        "I had a long day.",
        "I saw a film yesterday.",
        "the train was late.",
        "today is Monday.",
        "it is cold outside.",
        "I went for a walk.",
        "I like this.",
        "I just had lunch.",
        "tomorrow I will go shopping.",
        "the sun is shining.",
        "it was a busy week.",
        "I watched a game on TV.",
        "I am at home now.",
        "we went to the park.",
        "I need a break.",
        "the shop was closed.",
        "I read a good story.",
        "there is a lot of traffic.",
        "my computer is slow.",
        "I cleaned the house today.",
        "it's getting late.",
    ],
    [
        "das Wetter ist schön",
        "es regnet",
        "der Zug war spät",
        "heute ist Montag",
        "ich war spazieren",
        "die Sonne scheint",
        "ich war einkaufen",
        "es ist kalt draußen",
    ],
)
FILLER_REPLY = ("I see.", "Ich verstehe.")
SHORT = (
    [
        "ok",
        "okay",
        "cool",
        "yes",
        "no",
        "fine",
        "great",
        "nice",
        "good",
        "right",
        "I see",
        "interesting",
        "correct",
        "that's right",
        "well done",
        "perfect",
        "sure",
        "alright",
        "very good",
    ],
    ["ok", "gut", "ja", "nein", "super", "toll", "schön", "stimmt", "richtig"],
)
SHORT_REPLY = ("OK.", "OK.")
WORLD = (
    [
        "what is the capital of {P}?",
        "who wrote {P}?",
        "how far is it to {P}?",
        "explain quantum physics.",
        "what is the meaning of life?",
        "how tall is {N}?",
        "write me a poem.",
        "tell me a joke.",
        "what time is it?",
        "what day is it today?",
        "who won the game?",
        "how do I bake a cake?",
        "what is the weather like in {P}?",
        "translate this into French.",
        "who is the president?",
        "when was {P} built?",
        "why is the sky blue?",
        "tell me a story about {N}.",
        "how many people live in {P}?",
        "what is {w}?",
        "can you write code?",
        "what does {w} mean?",
        "where is {P}?",
        "tell me about {P}.",
        "what is the population of {P}?",
        "do you like music?",
        "how old are you?",
        "where do you live?",
        "what is the square root of {n}?",
        "recommend a book.",
        "is there life on Mars?",
        "who invented the {w}?",
    ],
    [
        "was ist die Hauptstadt von {P}?",
        "wie spät ist es?",
        "erzähl mir einen Witz",
        "wie weit ist es nach {P}?",
        "wer hat {P} gebaut?",
        "was bedeutet {w}?",
        "warum ist der Himmel blau?",
        "wo liegt {P}?",
        "wie alt bist du?",
        "schreib ein Gedicht",
    ],
)
WORLD_REPLY = (
    "I do not know that. I am only a small demo model.",
    "Das weiß ich nicht. Ich bin nur ein kleines Demomodell.",
)

ASK_PREFIX = (
    [
        "",
        "",
        "",
        "",
        "",
        "",
        "hey, ",
        "ok, ",
        "so, ",
        "and ",
        "by the way, ",
        "now, ",
        "please tell me: ",
        "a question: ",
        "hm, ",
        "and now: ",
        "ok. ",
        "good. ",
        "thanks. ",
        "quick question: ",
        "tell me, ",
        "well, ",
        "let's see: ",
    ],
    ["", "", "", "und ", "sag mal, ", "ok, ", "bitte sag mir: ", "so, ", "gut, "],
)
TELL_PREFIX = (
    [
        "",
        "",
        "",
        "",
        "",
        "",
        "hi, ",
        "hello, ",
        "hey, ",
        "by the way, ",
        "also, ",
        "ok, ",
        "you should know that ",
        "please remember that ",
        "remember: ",
        "just so you know, ",
        "well, ",
        "fun fact: ",
        "note that ",
        "remember that ",
        "hi! ",
        "hello! ",
        "so, ",
    ],
    ["", "", "", "hallo, ", "übrigens: ", "also, ", "hallo! ", "ok, "],
)
FIX_PREFIX = (
    [
        "actually, ",
        "sorry, ",
        "no, ",
        "no, wait, ",
        "wait, ",
        "correction: ",
        "I made a mistake: ",
        "I changed my mind: ",
        "oh, sorry, ",
        "that was wrong: ",
        "no: ",
        "oops, ",
        "I was wrong, ",
        "hm, no, ",
        "sorry, I meant: ",
        "actually ",
    ],
    [
        "nein, ",
        "eigentlich: ",
        "Entschuldigung, ",
        "Korrektur: ",
        "ich habe mich geirrt: ",
        "das war falsch: ",
        "ach nein, ",
    ],
)
CLOSERS = ["", "", "", "", "", " please", " thanks"]

SYS_PLAIN = [
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Be helpful.",
    "Answer briefly.",
    "You are a helpful assistant. Answer briefly.",
    "Be kind and honest.",
    "You are a chat assistant.",
    "Help the user.",
]
SYS_DE = [
    "Answer in German.",
    "Always answer in German.",
    "You answer in German.",
    "Reply only in German.",
    "Speak German.",
    "Antworte auf Deutsch.",
    "Du antwortest immer auf Deutsch.",
    "Sprich Deutsch.",
    "Please reply in German.",
    "The language of your answers is German.",
    "Respond in German.",
    "Use German.",
]
SYS_EN = [
    "Answer in English.",
    "Always answer in English.",
    "Reply only in English.",
    "Speak English.",
    "Antworte auf Englisch.",
    "Respond in English.",
]
SYS_UPPER = [
    "Answer in upper case.",
    "Write everything in capital letters.",
    "Use only capital letters.",
    "Always answer in upper case.",
    "ANSWER IN UPPER CASE.",
    "Reply in capital letters.",
    "Reply in upper case letters.",
    "Write in all caps.",
    "Respond in uppercase.",
    "Use upper case.",
]
SYS_PERSONA = [
    "You are {p}.",
    "Your name is {p}.",
    "You are {p}, a helpful assistant.",
    "You are an assistant called {p}.",
    "You are a robot named {p}.",
    "You are {p}, a friendly robot.",
    "Act as {p}.",
    "You are called {p}.",
    "Du bist {p}.",
    "Dein Name ist {p}.",
    "You are {p}, an assistant.",
    "Your name is {p}. You are a helpful assistant.",
]
SYS_SUFFIX = [
    "End every answer with {w}.",
    "Always end your answer with the word {w}.",
    "Finish each reply with {w}.",
    "Say {w} at the end of every answer.",
]
SYS_NAME = ["The user's name is {v}.", "The user is called {v}.", "You are talking to {v}."]
SYS_LIVE = ["The user lives in {v}.", "The user's home is in {v}."]

SWITCH = {  # what the user says to change the manner of answering, and the reply in (English, German)
    "de": (
        [
            "please answer in German.",
            "speak German please.",
            "answer in German from now on.",
            "switch to German.",
            "can you speak German?",
            "in German please.",
            "sprich Deutsch.",
            "bitte antworte auf Deutsch.",
        ],
        "OK, ich antworte jetzt auf Deutsch.",
    ),
    "en": (
        [
            "please answer in English.",
            "speak English please.",
            "answer in English from now on.",
            "switch to English.",
            "can you speak English?",
            "in English please.",
            "sprich Englisch.",
            "bitte antworte auf Englisch.",
        ],
        "OK, I will answer in English now.",
    ),
    "upper": (
        [
            "please write in capital letters.",
            "answer in upper case.",
            "use capital letters from now on.",
            "write in all caps.",
            "in upper case please.",
            "schreib in Großbuchstaben.",
        ],
        ("OK, I will write in capital letters now.", "OK, ich schreibe jetzt in Großbuchstaben."),
    ),
    "lower": (
        [
            "stop using capital letters.",
            "please write normally.",
            "no more capital letters.",
            "normal letters please.",
            "schreib wieder normal.",
        ],
        ("OK, I will write normally now.", "OK, ich schreibe jetzt normal."),
    ),
}
CALL_YOU = [
    "I will call you {p}.",
    "your name is {p}.",
    "from now on you are {p}.",
    "you are {p}.",
    "your new name is {p}.",
    "I name you {p}.",
    "let me call you {p}.",
]
CALL_YOU_REPLY = ("OK, I am {p} now.", "OK, ich bin jetzt {p}.")
