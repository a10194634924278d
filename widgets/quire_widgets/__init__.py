"""The notebook interface: ipywidgets over quire's public API, with no logic of their own.

Needs the extra `widgets`: `pip install "quire[widgets]"`.
"""
