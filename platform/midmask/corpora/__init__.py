"""Collections of many formats, composed of passages, queries and judgements; and the step that prepares them."""
