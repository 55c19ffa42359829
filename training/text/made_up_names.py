"""Makes up names: random syllables in which one sound is written in one of several ways.

The spelling cannot be derived from the sound, so a model must use its prompt to write such a name correctly.
"""

import random

_ONSETS = (
    "b d f|ph g h j k|c|ck|kh l|ll m n|nn p r|rh s|c|z t|tt|th v|w w|wh y z|s|tz sh|sch|ch ch|tch br|bh dr fr|phr gr "
    "kr|chr|cr pr tr st|szt sk|sc|sch sl|szl sp kl|cl|chl gl fl bl kw|qu"
).split()
_VOWELS = "a|ah|aa e|eh i|y|ie o|oh|au u|oo|ou ee|ea|ie|i ay|ai|ei|ey oh|oa|ow ow|au er|ur|ir|yr ar|aar or|ore".split()
_CODAS = "n|nn|nne m l|ll|lle r|rr s|ss|sse|sz t|tt|dt|tte k|ck|c|que d x|cks|ks n th ng st v|ff|w sh|sch z|tz".split()
_ENDINGS = (
    "son|sen|sson ski|sky|sci a|ah|e o ez|es|eth ia|ya|iya ova ic|ich|itz|ik ton|tun man|mann burg|berg ford|fort "
    "ley|leigh|lee|ly ville|vil er|ers stein|stine elli|eli in|yn|ine ette|et is|ys|us kov|koff|cov wick|wic"
).split()


def name(r: random.Random) -> str:
    """A name of two to four syllables, as for a person, a place or a product."""

    def one(choices: list[str]) -> str:
        return r.choice(r.choice(choices).split("|"))

    made = one(_ONSETS) if r.random() < 0.8 else ""
    for index in range(r.choice((1, 1, 2, 2, 3))):
        made += (one(_ONSETS) if index else "") + one(_VOWELS)
        made += r.choice("nrls") if r.random() < 0.2 else ""
    made += one(_ENDINGS) if made[-1] not in "aeiouy" and r.random() < 0.5 else one(_CODAS)
    return made[0].upper() + made[1:]
