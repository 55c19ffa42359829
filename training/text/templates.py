"""Makes sentences from templates of everyday, office, telephone, meeting, lecture and command English.

`{slot}` is replaced by one of the values of the slot, `{a|b|c}` by one of the three, and `{#kind}` by a random value of
`VALUE_MAKERS`. Slots may hold slots.
"""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from training.text import made_up_names, numbers

FIRST_NAMES = (
    "James Mary John Patricia Robert Jennifer Michael Linda William Elizabeth David Barbara Richard Susan Joseph "
    "Jessica Thomas Sarah Charles Karen Daniel Nancy Matthew Lisa Anthony Betty Mark Margaret Paul Sandra Steven "
    "Ashley Andrew Emily Joshua Donna Kevin Michelle Brian Carol George Amanda Edward Melissa Peter Deborah "
    "Alice Henry Laura Simon Helen Oliver Emma Jack Sophie Adam Grace Oscar Julia Martin Anna Victor Maria Aisha "
    "Ahmed Priya Raj Ravi Sanjay Yuki Kenji Hiro Mei Wei Ling Chen Dmitri Ivan Olga Natasha Pavel Lukas Hans "
    "Greta Ingrid Lars Sven Bjorn Freya Pierre Claire Amelie Luc Marie Carlos Sofia Diego Elena Pablo Lucia "
    "Marco Giulia Luca Paolo Fatima Omar Hassan Leila Yusuf Kofi Amara Chidi Zainab Noah Liam Ethan Mason Logan "
    "Lucas Aiden Mia Isabella Charlotte Amelia Harper Evelyn Abigail Hannah Zoe Chloe Ruby Stella Violet Hazel "
    "Nora Lily Ella Leo Max Felix Hugo Theo Finn Owen Caleb Isaac Nathan Samuel Benjamin Jacob Alexander "
    "Nicholas Christopher Rebecca Rachel Catherine Christine Janet Diane Ruth Sharon Cynthia Kathleen Amy Angela "
    "Brenda Pamela Nicole Samantha Ramesh Sunil Anita Deepa Tomas Katarina Milan Petra"
).split()
LAST_NAMES = (
    "Smith Johnson Williams Brown Jones Miller Davis Wilson Anderson Taylor Moore Jackson Martin Lee Thompson "
    "White Harris Clark Lewis Robinson Walker Young Allen King Wright Scott Hill Green Adams Baker Nelson Carter "
    "Mitchell Roberts Turner Phillips Campbell Parker Evans Edwards Collins Stewart Morris Murphy Cook Rogers "
    "Cooper Bennett Peterson Bailey Reed Kelly Howard Ramos Cox Ward Richardson Watson Brooks Chavez Wood James "
    "Gray Mendoza Ruiz Hughes Price Alvarez Castillo Sanders Patel Myers Long Ross Foster Jimenez Garcia "
    "Rodriguez Martinez Hernandez Lopez Gonzalez Perez Sanchez Ramirez Torres Nguyen Kim Park Tanaka Suzuki Sato "
    "Yamamoto Nakamura Kowalski Nowak Novak Schmidt Schneider Fischer Weber Meyer Wagner Becker Hoffmann Dubois "
    "Laurent Moreau Lambert Rossi Russo Ferrari Bianchi Romano Silva Santos Oliveira Pereira Johansson Andersson "
    "Karlsson Nilsson Lindqvist Hansen Olsen Larsen Jensen Ivanov Petrov Popov Volkov Singh Kumar Sharma Gupta "
    "Khan Ali Hussain Ibrahim Okafor Mensah Diallo O'Brien O'Connor O'Neill McDonald McCarthy Fitzgerald "
    "Sullivan Gallagher Delacroix Beaumont Chandler Holloway Whitfield Sinclair Montgomery Blackwood Ashford "
    "Hawthorne"
).split()
PLACES = (
    "London|Paris|Berlin|Madrid|Rome|Vienna|Chicago|Boston|Seattle|Denver|Houston|Dallas|Atlanta|Toronto|Sydney|"
    "Tokyo|Dublin|Oxford|Cambridge|Manchester|Liverpool|Glasgow|Edinburgh|Bristol|Leeds|Birmingham|Montreal|"
    "Vancouver|Phoenix|Portland|Miami|Detroit|Philadelphia|San Francisco|Los Angeles|San Diego|Las Vegas|"
    "New York|New Orleans|Washington|Munich|Hamburg|Frankfurt|Cologne|Zurich|Geneva|Amsterdam|Rotterdam|Brussels|"
    "Antwerp|Lisbon|Porto|Barcelona|Valencia|Seville|Milan|Venice|Florence|Naples|Athens|Istanbul|Ankara|Cairo|"
    "Nairobi|Lagos|Cape Town|Johannesburg|Mumbai|Delhi|Bangalore|Kolkata|Beijing|Shanghai|Hong Kong|Singapore|"
    "Bangkok|Jakarta|Manila|Seoul|Osaka|Kyoto|Melbourne|Brisbane|Perth|Auckland|Wellington|Stockholm|Uppsala|"
    "Oslo|Bergen|Copenhagen|Helsinki|Warsaw|Krakow|Prague|Budapest|Bucharest|Sofia|Moscow|Kyiv|Mexico City|Lima|"
    "Bogota|Santiago|Buenos Aires|Rio de Janeiro|Canada|France|Germany|Italy|Spain|Portugal|Greece|Turkey|Egypt|"
    "Kenya|India|China|Japan|Korea|Australia|Brazil|Argentina|Mexico|Sweden|Norway|Denmark|Finland|Poland|"
    "Ireland|Scotland|Wales|England|California|Texas|Florida|Ohio|Virginia|Oregon|Colorado|Arizona|Norwich|York|"
    "Windsor|Reading|Brighton"
).split("|")
ALPHABET = (
    "Alpha Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliet Kilo Lima Mike November Oscar Papa Quebec "
    "Romeo Sierra Tango Uniform Victor Whiskey X-ray Yankee Zulu Apple Boy Cat Dog Easy Frank George Henry Ida "
    "John King Lincoln Mary Nancy Ocean Peter Queen Robert Sugar Tom Union Violet William Young Zebra"
).split()

SLOTS_FILE = Path(__file__).parent / "slots.txt"
"""One slot in each line: its name and its values."""
SENTENCES_FILE = Path(__file__).parent / "sentences.txt"
"""Groups of sentence templates. The heading of a group holds its name and its share."""


def _email(r: random.Random) -> str:
    user = (
        r.choice(FIRST_NAMES).lower()
        if r.random() < 0.8
        else r.choice("info sales support office contact hello".split())
    )
    if r.random() < 0.5:
        user += r.choice([" dot ", " underscore ", " "]).replace("  ", " ") + r.choice(LAST_NAMES).lower().replace(
            "'", ""
        )
    return f"{user} at {_site(r)}"


def _site(r: random.Random) -> str:
    host = r.choice("example mail webmail office company school library museum bank tutti server cloud home".split())
    return f"{host} dot {r.choice('com com com org net edu'.split())}"


def _money(r: random.Random) -> str:
    whole = r.choice(
        [r.randint(1, 20), r.randint(20, 99), r.randint(100, 999), r.randint(10, 99) * 100, r.randint(1, 90) * 1000]
    )
    text = numbers.cardinal(whole, r.random() < 0.3) + r.choice([" dollars", " dollars", " euros", " pounds"])
    if whole == 1:
        text = text[:-1]
    if whole < 200 and r.random() < 0.3:
        text += " and " + numbers.cardinal(r.randint(2, 99)) + " cents"
    return text


def _number(r: random.Random) -> str:
    n = r.choice(
        [r.randint(0, 20), r.randint(10, 99), r.randint(100, 999), r.randint(1000, 9999), r.randint(10, 99) * 100]
    )
    return numbers.cardinal(n, r.random() < 0.3)


def _big(r: random.Random) -> str:
    n = r.choice([r.randint(2, 99) * 1000, r.randint(1, 20) * 10**6, r.randint(10, 99) * 10**5, r.randint(1001, 99999)])
    return numbers.cardinal(n, r.random() < 0.2)


def _digits(r: random.Random) -> str:
    return numbers.digits(r, r.choice([3, 4, 4, 5, 6, 6, 7, 8, 9, 10]))


def _as_in(r: random.Random) -> str:
    word = r.choice(ALPHABET if r.random() < 0.8 else FIRST_NAMES)
    return f"{word[0]} as in {word}"


def _named_spelled(r: random.Random) -> str:
    name = r.choice(FIRST_NAMES + LAST_NAMES + PLACES)
    return f"{name}, {numbers.spelled(name)}"


VALUE_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "first": lambda r: r.choice(FIRST_NAMES),
    "last": lambda r: r.choice(LAST_NAMES),
    "city": lambda r: r.choice(PLACES),
    "day": lambda r: r.choice(numbers.DAYS),
    "month": lambda r: r.choice(numbers.MONTHS),
    "year": lambda r: numbers.year(r.choice([r.randint(1900, 2035), r.randint(1500, 2030)]), r),
    "date": numbers.date,
    "clock": numbers.clock,
    "hour": lambda r: numbers.ONES[r.randint(1, 12)],
    "digit": lambda r: numbers.ONES[r.randint(0, 9)],
    "digits": _digits,
    "phone": lambda r: numbers.digits(r, r.choice([7, 10, 10, 11])),
    "small": lambda r: numbers.cardinal(r.choice([r.randint(2, 12), r.randint(2, 99)])),
    "small_figure": lambda r: str(r.randint(1, 12)),
    "number": _number,
    "number_or_digits": lambda r: _number(r) if r.random() < 0.6 else numbers.digits(r, r.choice([2, 3, 4])),
    "big": _big,
    "percent": lambda r: numbers.cardinal(r.randint(1, 100)) + " percent",
    "decimal": lambda r: (
        f"{numbers.cardinal(r.randint(0, 120))} point {numbers.digits(r, r.choice([1, 1, 2])).replace(',', '')}"
    ),
    "ordinal": lambda r: numbers.ordinal(r.choice([r.randint(1, 12), r.randint(1, 99)])),
    "money": _money,
    "letter": lambda r: r.choice(numbers.LETTERS),
    "letters": lambda r: " ".join(r.choice(numbers.LETTERS) for _ in range(r.randint(2, 6))),
    "code": numbers.code,
    "alphabet": lambda r: r.choice(ALPHABET),
    "as_in": _as_in,
    "letter_pair": lambda r: f"{_as_in(r)}, and {_as_in(r)}",
    "spelled_name": lambda r: numbers.spelled(r.choice(LAST_NAMES + FIRST_NAMES)),
    "named_spelled": _named_spelled,
    "email": _email,
    "site": _site,
}


def _parse() -> tuple[dict[str, list[str]], list[tuple[str, float, list[str]]]]:
    slots = {}
    for line in SLOTS_FILE.read_text().splitlines():
        name, _, body = line.partition(": ")
        slots[name] = _split(body)
    groups: list[tuple[str, float, list[str]]] = []
    for line in SENTENCES_FILE.read_text().splitlines():
        if heading := re.fullmatch(r"([a-z]+) (\d+)", line):
            groups.append((heading[1], float(heading[2]), []))
        else:
            groups[-1][2].append(line)
    return slots, groups


def _split(body: str) -> list[str]:
    """Split at the bars that are not inside braces."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(body):
        depth += (letter == "{") - (letter == "}")
        if letter == "|" and depth == 0:
            parts.append(body[start:i])
            start = i + 1
    return [*parts, body[start:]]


class Grammar:
    """Makes random sentences. Equal seeds give equal sentences."""

    def __init__(self, r: random.Random, terms: Sequence[str] = (), proper_names: Sequence[str] = ()) -> None:
        """`terms` are the values of `{#term}`. `proper_names` and made-up names are the values of `{#rare}`."""
        self.r = r
        self.slots, self.groups = _parse()
        self._makers: dict[str, Callable[[random.Random], str]] = VALUE_MAKERS | {
            "term": lambda r: r.choice(terms or FIRST_NAMES),
            "rare": lambda r: r.choice(proper_names) if proper_names and r.random() < 0.6 else made_up_names.name(r),
        }
        self._weights = [weight for _, weight, _ in self.groups]

    def sentence(self, group: str | None = None) -> str:
        """A sentence of a group, or of any group."""
        _, _, templates = self.r.choices(self.groups, self._weights)[0]
        if group is not None:
            templates = next(lines for name, _, lines in self.groups if name == group)
        text = self.expand(self.r.choice(templates))
        text = re.sub(r"\ba (?=[aeio])", "an ", text)
        text = re.sub(r"\s+([.,?])", r"\1", " ".join(text.split()))
        text = re.sub(r"[.,?]+([.?])$", r"\1", text)
        if re.match(r"(Can|Could|Would|Did|Does|Have you|Are there) ", text):
            text = text.removesuffix(".").removesuffix("?") + "?"
        return text[0].upper() + text[1:]

    def expand(self, template: str) -> str:
        """Replace everything in braces."""
        while (start := template.rfind("{")) >= 0:  # the last opening brace has the innermost alternatives
            end = template.index("}", start)
            template = template[:start] + self._choose(template[start + 1 : end]) + template[end + 1 :]
        return template

    def _choose(self, body: str) -> str:
        option = self.r.choice(_split(body)) if "|" in body else body
        make = self._makers.get(option.lstrip("#"))
        if make and (option.startswith("#") or ("|" not in body and option not in self.slots)):
            return make(self.r)
        if option in self.slots and ("|" not in body or option == "city"):
            return self.expand(self.r.choice(self.slots[option]))
        return option
