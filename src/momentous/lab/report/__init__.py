"""Reports of a study: tables, pictures, the page with Plotly's plots, the account in Markdown."""
