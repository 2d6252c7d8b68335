resource "jetstream_consumer" "NONE" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "NONE"
  deliver_all      = true
  delivery_subject = "d"
  ack_policy       = "none"
}
resource "jetstream_consumer" "FLOW" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "FLOW"
  deliver_all      = true
  delivery_subject = "d"
  ack_policy       = "flow_control"
}
resource "jetstream_consumer" "GIVEN" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "GIVEN"
  deliver_all      = true
  delivery_subject = "d"
  ack_policy       = "none"
  max_ack_pending  = 5
}
resource "jetstream_consumer" "ONE_FILTER" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "ONE_FILTER"
  deliver_all     = true
  filter_subjects = ["S.a"]
}
