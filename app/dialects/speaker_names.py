"""What clients read in place of the numbers of speakers: letters, as OpenAI's `diarized_json` has them."""


def letters(rank: int) -> str:
    """The letters of the speaker with this number: A to Z for 0 to 25, then AA and so on."""
    text = ""
    while rank >= 0:
        text = chr(ord("A") + rank % 26) + text
        rank = rank // 26 - 1
    return text
