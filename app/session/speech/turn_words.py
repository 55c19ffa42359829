"""Word lists of turn taking: words that hardly ever end a sentence, and words that numbers and codes are spoken with.

They exist for a few languages. For others, punctuation and the engine's probabilities must do.
"""

UNFINISHED = {
    "en": (
        "a an and any as at because been but by can could for from had has have he her his i i'd i'll i'm if in into "
        "is it's its like maybe might my nor number of or our she should since so some than the their they though to "
        "uh um er erm hmm until very we well what when where whether which while who whose why with would your"
    ),
    "de": (
        "aber als am beim bis das dass dein deine dem den denn der des die ein eine einem einen einer für hat habe "
        "haben ich im in ist kann mein meine meinem meinen meiner nummer ob oder sein seine sich sind um und unser "
        "vom von war was weil welche wenn wer wie wir zum zur äh ähm"
    ),
    "fr": (
        "à au aux avec c'est car ce ces cette chez comme dans de des donc du en est et euh il j'ai je la le les leur "
        "lorsque ma mais mes mon ni notre numéro ont ou où par parce pour puis quand que qui sa sans se ses si son "
        "sont sur ta tes ton très un une vers votre"
    ),
    "es": (
        "a al ante aunque como con cuando de del desde donde e eh el en entonces es este hasta la las los me mi mis "
        "muy ni número o para pero por porque pues que se si sin sobre son su sus te tu un una y yo"
    ),
}
"""By language, words that hardly ever end a sentence: conjunctions, articles, prepositions, pronouns, hesitations."""
NUMBERS = {
    "en": (
        "zero oh one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million "
        "double triple dash dot point"
    ),
    "de": (
        "null ein eins zwei zwo drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
        "sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert "
        "tausend bindestrich punkt"
    ),
    "fr": (
        "zéro un une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize vingt "
        "vingts trente quarante cinquante soixante cent cents mille tiret point virgule"
    ),
    "es": (
        "cero uno una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis "
        "diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa cien "
        "ciento mil guion punto"
    ),
}
"""By language, words that numbers and codes are spoken with. The joined words of larger German numbers are left out."""

UNFINISHED_WORDS = {language: frozenset(words.split()) for language, words in UNFINISHED.items()}
SPOKEN_NUMBERS = {language: frozenset(words.split()) for language, words in NUMBERS.items()}
