resource "jetstream_stream" "S" {
  name     = "S"
  subjects = ["S.>"]
  placement_cluster = "east"
  placement_tags    = ["ssd"]
  republish_source      = "S.a"
  republish_destination = "r.a"
  subject_transform {
    source      = "S.a"
    destination = "S.b"
  }
  source {
    name       = "ONE"
    start_seq  = 7
    subject_transform {
      source      = "x"
      destination = "y"
    }
    external {
      api     = "$JS.hub.API"
      deliver = "hub"
    }
  }
  source {
    name       = "TWO"
    start_time = "2024-01-01T00:00:00Z"
    consumer {
      name            = "feed"
      deliver_subject = "feed.two"
    }
  }
}
resource "jetstream_stream" "M" {
  name          = "M"
  mirror_direct = true
  mirror {
    name = "S"
  }
}
