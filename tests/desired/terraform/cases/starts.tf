resource "jetstream_consumer" "LAST" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "LAST"
  deliver_last = true
}
resource "jetstream_consumer" "PER_SUBJECT" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "PER_SUBJECT"
  deliver_last_per_subject = true
}
resource "jetstream_consumer" "SEQUENCE" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "SEQUENCE"
  stream_sequence = 10
}
resource "jetstream_consumer" "TIME" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "TIME"
  start_time = "2024-01-01T00:00:00.500Z"
}
