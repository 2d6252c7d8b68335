resource "jetstream_stream" "S" {
  name     = "S"
  subjects = ["S.>"]
  max_age          = 60 * 60 * 24 * 365
  duplicate_window = 5
  inactive_threshold = 7
  subject_delete_marker_ttl = 9
  max_ack_pending = 3
}
resource "jetstream_consumer" "C" {
  stream_id    = "JETSTREAM_STREAM_S"
  durable_name = "C"
  deliver_new        = true
  delivery_subject   = "d"
  ack_wait           = 2
  heartbeat          = 3
  inactive_threshold = 5
  backoff            = [2, 4]
  max_expires        = 6
  priority_timeout   = 8
}
resource "jetstream_kv_bucket" "K" {
  name             = "K"
  ttl              = 60
  limit_marker_ttl = 5
}
