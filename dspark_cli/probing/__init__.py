"""The experiment behind `dspark-tool probe`: prompts, phases, and the comparison of restored with cold."""
