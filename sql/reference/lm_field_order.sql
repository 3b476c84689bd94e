-- lm_field_order(fields)  ->  JSON, an array of names
--
-- An aggregate: in which order the fields of many rows (a JSON object each) share most of their beginnings, for lm_prompt. It is
-- the best order that is the same for all rows, found over all of them; only texts that are equal as a whole count as shared.

CREATE TEMP TABLE visits(note TEXT, ward TEXT, hospital TEXT);
INSERT INTO visits VALUES
  ('slept well', 'children', 'St. Mary'), ('asked for tea', 'children', 'St. Mary'),
  ('went home', 'surgery', 'St. Mary'), ('waits', 'surgery', 'St. Mary');

SELECT lm_field_order(json_object('note', note, 'ward', ward, 'hospital', hospital)) FROM visits;
--> ["hospital","ward","note"]

-- It is of the rows as they are now. A prompt that has changed is generated anew, so keep the order where rows are added later.
CREATE TEMP TABLE orders AS SELECT lm_field_order(json_object('note', note, 'ward', ward, 'hospital', hospital)) AS names FROM visits;
INSERT INTO visits VALUES ('came in', 'children', 'North'), ('came in', 'surgery', 'East');
SELECT lm_prompt('{{*}}', json_object('note', note, 'ward', ward, 'hospital', hospital), names) FROM visits, orders WHERE hospital = 'North';
--> hospital: North\nward: children\nnote: came in

SELECT lm_field_order(NULL);
--> NULL
SELECT lm_field_order('[1]');
--! fields must be a JSON object
