-- CREATE VIRTUAL TABLE temp.name USING lm_extract_each('schema' [, 'options'])  ->  a table, of which each property is a column
--
-- lm_extract's fields as columns of their types. The schema is said once, when the table is made, for a table's columns are known
-- before it is read; then the table is a function of a text. A boolean is 0 or 1, an array or an object JSON; what a text does not
-- tell is NULL. Of a schema, or of an array's items, that is a $ref the properties are those of what it refers to.

CREATE TEMP TABLE documents(package TEXT, description TEXT);
INSERT INTO documents VALUES
  ('libtidepool2', 'This library predicts the tides of a harbour from its harmonic constituents. This package contains the shared library that programs need at run time.'),
  ('ruby-cartwheel', 'Cartwheel is a small web framework for Ruby. It maps addresses to blocks of code, renders templates, and needs no configuration.'),
  ('netsplit', 'netsplit watches the network interfaces of a computer and divides the traffic between two uplinks. When one of them fails, the connections move to the other. It runs as a daemon and is configured by a text file.'),
  ('none', NULL);

CREATE VIRTUAL TABLE temp.tags USING lm_extract_each('{"type":"object","properties":{
  "role":{"type":"array","items":{"enum":["program","shared-lib","devel-lib","documentation","plugin"]},"maxItems":1},
  "implemented_in":{"type":"array","items":{"enum":["c","c++","python","ruby","haskell"]},"maxItems":1}}}');
SELECT package, role ->> 0, implemented_in ->> 0 FROM documents, tags(documents.description) WHERE package <> 'netsplit';
--> libtidepool2|shared-lib|NULL
--> ruby-cartwheel|shared-lib|ruby

-- In a join rows are asked about together, as look-ahead sees them coming; and what was asked once is remembered.
CREATE TEMP TABLE tagged AS SELECT package, role, implemented_in FROM documents, tags(documents.description);
SELECT count(*) FROM tagged;
--> 3

-- Of an array of objects each is a row.
CREATE VIRTUAL TABLE temp.parts USING lm_extract_each(
  '{"type":"array","minItems":1,"maxItems":3,"items":{"type":"object","properties":{"section":{"enum":["libs","ruby","net"]},"size":{"type":"integer"}},"required":["section"]}}');
SELECT package, count(*) BETWEEN 1 AND 3, min(section IN ('libs', 'ruby', 'net')) FROM documents, parts(documents.description) GROUP BY package;
--> libtidepool2|1|1
--> netsplit|1|1
--> ruby-cartwheel|1|1
SELECT group_concat(name || ' ' || type, ', ') FROM pragma_table_info('parts');
--> section , size INTEGER

SELECT * FROM lm_extract_each('a text', '["name"]');
--! its columns are those of a schema: CREATE VIRTUAL TABLE temp.people USING lm_extract_each
