"""The record: columns of the tables, the folders of runs, the documents' numbers, and numbers as text."""

from .runs import records, rows
