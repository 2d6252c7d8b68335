resource "jetstream_stream" "A" {
  name = 
}
