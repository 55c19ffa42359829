"""Speech detectors: they decide of single frames of audio whether somebody speaks."""
