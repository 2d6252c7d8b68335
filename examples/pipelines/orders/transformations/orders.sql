-- Every order once, kept longer than the stream keeps it.
CREATE STREAMING TABLE orders_kept AS
SELECT seq, subject, timestamp, value.customer AS customer, value.amount AS amount
FROM STREAM ORDERS
WHERE value.customer IS NOT NULL;

-- What goes into the stream LARGE: a row is a message, its id the order's.
CREATE TEMPORARY VIEW large_orders AS
SELECT
  concat('LARGE.', customer) AS subject,
  to_json(struct(seq, customer, amount)) AS value,
  concat('ORDERS:', seq) AS msgId
FROM STREAM orders_kept
WHERE amount >= 100;
