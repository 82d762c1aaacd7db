"""Steps, measures, exercises, ladder: what the lessons stand on."""
