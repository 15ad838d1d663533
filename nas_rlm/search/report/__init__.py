"""report.html: a page with all of a search, in a single file for a browser."""

from nas_rlm.search.report.page import command_line, graph_view, render_report, report_info

__all__ = ["command_line", "graph_view", "render_report", "report_info"]
