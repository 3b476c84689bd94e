-- The tables of the demo: documents come in, notes come out.
CREATE TABLE documents(package TEXT, description TEXT);
CREATE TABLE notes(package TEXT PRIMARY KEY, section TEXT, summary TEXT, tags TEXT, is_library TEXT);
