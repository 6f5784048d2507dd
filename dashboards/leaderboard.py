"""The pages over tracked runs and verdicts, from a checkout: those of `midmask.pages`.

streamlit run dashboards/leaderboard.py -- --tracking-uri URI --verdict FOLDER
"""

from midmask.pages.dashboard import page

page()
