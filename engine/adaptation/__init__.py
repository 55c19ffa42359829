"""Makes a Whisper checkpoint able to use windows as long as their audio. Needs transformers, which no server imports."""
