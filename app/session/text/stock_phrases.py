"""What Whisper writes where it has not understood, because many of the subtitles that it was trained on end with it.

Such a text alone is no evidence that somebody has said it: it is not shown before it is final.
"""

STOCK_PHRASES = frozenset(
    (
        *("thankyou", "thanks", "thankyouverymuch", "thankyousomuch", "thanksforwatching", "thankyouforwatching"),
        *("bye", "byebye", "goodbye"),
        *("danke", "vielendank", "dankeschön", "tschüss"),
        *("merci", "mercibeaucoup", "aurevoir"),
        *("gracias", "muchasgracias", "adiós"),
        *("grazie", "graziemille", "ciao", "obrigado", "obrigada", "muitoobrigado", "tchau"),
        *("bedankt", "dankuwel", "dankjewel", "doei", "dziękuję", "dziękujębardzo", "tack", "tacksåmycket"),
        *("спасибо", "большоеспасибо", "пока", "дякую", "teşekkürederim", "teşekkürler"),
        *("ありがとうございました", "ありがとうございます", "ご視聴ありがとうございました", "감사합니다", "고맙습니다"),
        *("谢谢", "谢谢大家", "谢谢观看", "谢谢收看", "謝謝", "謝謝大家", "謝謝觀看", "شكرا", "धन्यवाद"),
    )
)
"""The phrases as `stabilizer.spoken` gives them: in small letters, without spaces and punctuation."""
