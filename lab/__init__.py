"""The paper: its rows, published figures, searches, records, tables and verdicts, made with pairtune as anyone would."""
