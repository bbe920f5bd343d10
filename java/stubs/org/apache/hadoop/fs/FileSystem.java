package org.apache.hadoop.fs;

import java.io.IOException;

/** The part of Hadoop's class that the log store uses. See java/README.md. */
@SuppressWarnings("rawtypes")
public abstract class FileSystem {
    public FSDataOutputStream create(Path path, boolean overwrite) throws IOException {
        throw new UnsupportedOperationException();
    }

    public FSDataOutputStreamBuilder createFile(Path path) {
        throw new UnsupportedOperationException();
    }

    public byte[] getXAttr(Path path, String name) throws IOException {
        throw new UnsupportedOperationException();
    }
}
