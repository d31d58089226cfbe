"""Rules over facts. Nothing here prints, runs vLLM or imports it."""
