//! The queuey-queue dialect over real sockets.

mod blobs;
