"""FreeSWITCH's audio streams (mod_audio_stream and mod_audio_fork): the audio of a channel, and its text as events."""
